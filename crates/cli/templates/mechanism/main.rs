//! The command `estafette` for this crate's registry: `cargo run --release -- --help`.

fn main() -> std::process::ExitCode {
    estafette_cli::main(my_mechanism::registry())
}

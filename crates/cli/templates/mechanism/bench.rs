//! `cargo bench`: measures this crate's mechanisms beside the built-in ones of the same scope.

fn main() -> std::process::ExitCode {
    estafette_cli::main(my_mechanism::registry())
}

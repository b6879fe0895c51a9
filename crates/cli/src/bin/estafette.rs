//! The `estafette` command with the mechanisms of this repository.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    estafette_cli::main(estafette_contest::registry())
}

use std::process::ExitCode;

fn main() -> ExitCode {
    baton_cli::main(std::env::args_os())
}

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(baton_cli::main(std::env::args_os()))
}

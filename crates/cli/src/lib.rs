//! `baton`: arguments become a configuration, with which one of the commands runs. Read the files in this order: `args` and
//! `options`, `config_file`, `topology`, `config` and `sizing`, then `serve`, `router` or `engine`; the first two
//! share `deploy`. Programs that embed Baton [prepare] a [`Deployment`] with the same options.

mod admin;
mod admin_client;
mod api_key;
mod args;
mod banner;
mod bench;
mod blueprint;
mod byte_size;
mod card;
mod config;
mod config_file;
mod core_claims;
mod cpu_list;
mod deploy;
mod deployment;
mod doctor;
mod engine;
mod fabric;
mod failure;
mod fleet_options;
mod header_value;
mod joining;
mod located;
mod logging;
mod machine;
mod mock;
mod model_text;
mod near_match;
mod options;
mod pull;
mod router;
mod router_options;
mod secret;
mod serve;
mod simulate;
mod sizing;
mod strategy;
mod topology;

use std::ffi::OsString;
use std::panic;
use std::process;

use baton_launcher::Screen;
use clap::Parser;

use args::{Cli, Command};

pub use deployment::Deployment;
pub use failure::Failure;
pub use logging::start as start_logging;
pub use serve::prepare;

/// Runs a command with its arguments, the first of which is the name of the program, and returns its exit status.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    end_with_the_reader();
    match run(Cli::parse_from(arguments)) {
        Ok(()) => 0,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit_status()
        }
    }
}

/// Lets SIGPIPE end this process when its output is closed, as by `baton doctor | head -1`. Rust ignores the signal by default, and
/// `println!` would panic.
fn end_with_the_reader() {
    const AS_IF_BY_SIGPIPE: i32 = 128 + 13;
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        let message = panicked.payload().downcast_ref::<String>();
        if message.is_some_and(|text| text.starts_with("failed printing to stdout") && text.contains("Broken pipe")) {
            process::exit(AS_IF_BY_SIGPIPE);
        }
        report(panicked);
    }));
}

fn run(cli: Cli) -> Result<(), Failure> {
    let screen = Screen::stderr();
    logging::start(&screen)?;
    match cli.command {
        Command::Serve(options) => serve::run(*options, screen),
        Command::Router(args) => router::run(*args, screen),
        Command::Engine(args) => engine::run(&args, screen),
        Command::Chat(options) => bench::chat(&options),
        Command::Bench(command) => bench::bench(&command),
        Command::Pull(args) => pull::run(&args, &screen),
        Command::Simulate(options) => simulate::run(&options),
        Command::Doctor => doctor::run(),
    }
}

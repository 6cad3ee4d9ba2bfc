//! Writes traces to standard error, above the progress lines.

use std::io::{self, IsTerminal, Write};

use baton_launcher::Screen;
use tracing_subscriber::filter::LevelFilter;

use crate::failure::Failure;

const ENV: &str = "BATON_LOG";

/// The first call in a process counts.
pub fn start(screen: &Screen) -> Result<(), Failure> {
    let level = match std::env::var(ENV) {
        Ok(name) => name.parse().map_err(|_| {
            Failure::user(format!("{ENV}={name} is not a log level"))
                .hint("levels are off, error, warn, info, debug, trace")
        })?,
        Err(_) => LevelFilter::INFO,
    };
    let screen = screen.clone();
    let started = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .without_time()
        .with_ansi(io::stderr().is_terminal())
        .with_writer(move || ScreenWriter(screen.clone()))
        .try_init();
    // Otherwise a program that embeds this one has a log of its own.
    drop(started);
    Ok(())
}

/// Each write is one formatted line.
struct ScreenWriter(Screen);

impl Write for ScreenWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.print(&String::from_utf8_lossy(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

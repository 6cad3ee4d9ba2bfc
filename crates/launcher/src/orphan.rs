//! How a child process notices that its parent has exited.

use std::io::{self, Read};
use std::thread;

/// Exits when standard input is closed: the launcher holds the other end of that pipe and never writes to it.
pub fn exit_with_parent() -> io::Result<()> {
    thread::Builder::new().name("parent-watch".into()).spawn(|| {
        let mut stdin = io::stdin().lock();
        let mut ignored = [0; 64];
        while !matches!(stdin.read(&mut ignored), Ok(0) | Err(_)) {}
        std::process::exit(0);
    })?;
    Ok(())
}

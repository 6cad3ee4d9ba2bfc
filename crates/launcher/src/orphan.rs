//! The child's half of not outliving its parent.

use std::io::{self, Read};
use std::thread;

/// Ends this process as soon as its standard input does: the launcher holds the other end of that pipe and never writes.
pub fn exit_with_parent() -> io::Result<()> {
    thread::Builder::new().name("parent-watch".into()).spawn(|| {
        let mut stdin = io::stdin().lock();
        let mut ignored = [0; 64];
        while !matches!(stdin.read(&mut ignored), Ok(0) | Err(_)) {}
        std::process::exit(0);
    })?;
    Ok(())
}

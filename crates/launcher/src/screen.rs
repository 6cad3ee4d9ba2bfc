//! Output on standard error: engine logs scroll above, one progress line per loading engine stays below. Without a terminal each
//! change of phase is a line of its own.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};

const BAR_CELLS: usize = 24;

#[derive(Clone)]
pub struct Screen(Arc<Mutex<State>>);

struct State {
    out: Box<dyn Write + Send>,
    redraws: bool,
    loading: BTreeMap<String, Loading>,
    lines_drawn: usize,
}

struct Loading {
    fraction: f32,
    phase: String,
}

impl Screen {
    pub fn stderr() -> Self {
        Self::new(io::stderr(), io::stderr().is_terminal())
    }

    fn new(out: impl Write + Send + 'static, redraws: bool) -> Self {
        Self(Arc::new(Mutex::new(State { out: Box::new(out), redraws, loading: BTreeMap::new(), lines_drawn: 0 })))
    }

    /// Prints a line of an engine's log.
    pub fn log(&self, engine: &str, line: &str) {
        self.update(|state| state.write(format!("{engine} | {line}\n")));
    }

    /// Prints whole lines that belong to no engine.
    pub fn print(&self, lines: &str) {
        self.update(|state| state.write(lines.to_owned()));
    }

    pub fn progress(&self, engine: &str, fraction: f32, phase: &str) {
        self.update(|state| {
            let now = Loading { fraction: fraction.clamp(0.0, 1.0), phase: phase.to_owned() };
            let percent = now.percent();
            let before = state.loading.insert(engine.to_owned(), now);
            if !state.redraws && before.is_none_or(|before| before.phase != phase) {
                state.write(format!("{engine} | {percent} % {phase}\n"));
            }
        });
    }

    /// Removes the progress line of an engine that is ready or has exited.
    pub fn progress_done(&self, engine: &str) {
        self.update(|state| drop(state.loading.remove(engine)));
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.erase();
        change(&mut state);
        state.draw();
    }
}

impl State {
    fn erase(&mut self) {
        if self.lines_drawn > 0 {
            // Up to the first progress line, then clear to the end of the screen.
            self.write(format!("\x1b[{}A\x1b[J", self.lines_drawn));
            self.lines_drawn = 0;
        }
    }

    fn draw(&mut self) {
        if !self.redraws {
            return;
        }
        let width = self.loading.keys().map(String::len).max().unwrap_or(0);
        let mut lines = String::new();
        for (engine, loading) in &self.loading {
            let filled = (loading.fraction * BAR_CELLS as f32) as usize;
            let bar = format!("{}{}", "█".repeat(filled), "░".repeat(BAR_CELLS - filled));
            let _infallible = writeln!(lines, "{engine:width$}  {bar} {:3} %  {}", loading.percent(), loading.phase);
        }
        self.write(lines);
        self.lines_drawn = self.loading.len();
    }

    /// Ignores errors: a closed terminal is no reason to stop serving.
    fn write(&mut self, text: String) {
        let _ = self.out.write_all(text.as_bytes());
    }
}

impl Loading {
    fn percent(&self) -> u32 {
        (self.fraction * 100.0) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn shown(redraws: bool) -> String {
        let out = Shared::default();
        let screen = Screen::new(out.clone(), redraws);
        screen.progress("decode-0", 0.0, "reading");
        screen.progress("decode-0", 0.5, "packing");
        screen.log("decode-0", "hello");
        screen.progress("decode-0", 0.75, "packing");
        screen.progress_done("decode-0");
        screen.log("decode-0", "ready");
        let bytes = out.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn plain_output_has_a_line_per_phase() {
        assert_eq!(
            shown(false),
            "decode-0 | 0 % reading\ndecode-0 | 50 % packing\ndecode-0 | hello\ndecode-0 | ready\n"
        );
    }

    #[test]
    fn a_terminal_keeps_progress_below_the_log() {
        let (half, most) = ("█".repeat(12) + &"░".repeat(12), "█".repeat(18) + &"░".repeat(6));
        let up = "\x1b[1A\x1b[J";
        let expected = [
            format!("decode-0  {}   0 %  reading\n", "░".repeat(24)),
            format!("{up}decode-0  {half}  50 %  packing\n"),
            format!("{up}decode-0 | hello\ndecode-0  {half}  50 %  packing\n"),
            format!("{up}decode-0  {most}  75 %  packing\n"),
            format!("{up}decode-0 | ready\n"),
        ];
        assert_eq!(shown(true), expected.concat());
    }
}

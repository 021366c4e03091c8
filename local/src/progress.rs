//! A progress bar on standard error; without a terminal there, nothing but the lines.

use std::io::{IsTerminal, Write};

/// Columns of the bar itself.
const BAR_COLUMNS: u64 = 30;
/// Columns of the text beside it.
const TEXT_CHARS: usize = 60;

/// How far a piece of work is.
#[derive(Debug)]
pub struct Progress {
    is_terminal: bool,
    total: Option<u64>,
    done: u64,
    text: String,
}

impl Progress {
    /// `total` is unknown where nobody has counted yet.
    pub fn new(total: Option<u64>) -> Self {
        Self { is_terminal: std::io::stderr().is_terminal(), total, done: 0, text: String::new() }
    }

    pub fn set(&mut self, done: u64, text: impl Into<String>) {
        self.done = done;
        self.text = text.into();
        self.draw();
    }

    /// A line that stays, above the bar.
    pub fn line(&mut self, text: &str) {
        self.clear();
        println!("{text}");
        self.draw();
    }

    /// A line that stays, for what is not as it should be.
    pub fn warn(&mut self, text: &str) {
        self.clear();
        eprintln!("{text}");
        self.draw();
    }

    /// Takes the bar away.
    pub fn finish(mut self) {
        self.clear();
        self.is_terminal = false;
    }

    fn clear(&self) {
        if self.is_terminal {
            self.write("\r\x1b[2K");
        }
    }

    fn draw(&self) {
        if self.is_terminal {
            self.write(&format!("\r\x1b[2K{}", render(self.done, self.total, &self.text)));
        }
    }

    /// A terminal that has gone is no reason to stop.
    fn write(&self, text: &str) {
        let mut stderr = std::io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}

fn render(done: u64, total: Option<u64>, text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).take(TEXT_CHARS).collect();
    match total {
        None => format!("{done} {text}"),
        Some(total) => {
            let filled = done.min(total).saturating_mul(BAR_COLUMNS).checked_div(total).unwrap_or(BAR_COLUMNS);
            let bar: String = (0..BAR_COLUMNS).map(|column| if column < filled { '#' } else { '.' }).collect();
            format!("[{bar}] {done}/{total} {text}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::render;

    #[test]
    fn a_bar_fills_and_never_breaks_the_line() {
        assert_eq!(render(0, Some(2), "a\nb"), format!("[{}] 0/2 a?b", ".".repeat(30)));
        assert_eq!(render(1, Some(2), ""), format!("[{}{}] 1/2 ", "#".repeat(15), ".".repeat(15)));
        assert_eq!(render(5, Some(2), ""), format!("[{}] 5/2 ", "#".repeat(30)));
        assert_eq!(render(0, Some(0), ""), format!("[{}] 0/0 ", "#".repeat(30)));
        assert_eq!(render(7, None, "folders"), "7 folders");
    }
}

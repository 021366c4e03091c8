//! Lines of a JSON file of actions, fetched in windows.

use bytes::BytesMut;
use serde_json::Value;

use super::CheckpointError;
use super::pages::Source;
use super::rows::Sidecar;
use crate::delta::actions::{Actions, Builder, PARSED};
use crate::delta::json::parse_strict;

/// Lines that are parsed at once: what is parsed takes several times the room of its text.
const PIECE_BYTES: usize = 256 * 1024;
/// Longest line that is read.
const LINE_MAX_BYTES: usize = 32 * 1024 * 1024;

/// What some lines say.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub actions: Actions,
    pub sidecars: Vec<Sidecar>,
    /// Whether a file has parsed statistics or partition values, which are not kept.
    pub has_parsed: bool,
}

/// A file that is read line by line.
pub(super) struct LineReader {
    next: u64,
    size_bytes: u64,
    held: BytesMut,
    number: usize,
}

impl LineReader {
    pub fn new(size_bytes: u64) -> LineReader {
        LineReader { next: 0, size_bytes, held: BytesMut::new(), number: 0 }
    }

    /// Some more lines; `None` at the end.
    pub async fn next(&mut self, source: Source<'_>) -> Result<Option<Lines>, CheckpointError> {
        loop {
            if let Some(end) = self.end_of_piece() {
                let text = self.held.split_to(end.saturating_add(1));
                return self.parse(&text).map(Some);
            }
            if self.next >= self.size_bytes {
                let text = self.held.split();
                return if text.is_empty() { Ok(None) } else { self.parse(&text).map(Some) };
            }
            if self.held.len() > LINE_MAX_BYTES {
                return Err(CheckpointError::damaged(format!("a line has more than {LINE_MAX_BYTES} bytes")));
            }
            let end = self.next.saturating_add(source.portions.window_bytes).min(self.size_bytes);
            let window = source.fetch(self.next, end).await?;
            if window.bytes.is_empty() {
                return Err(CheckpointError::damaged("the file is shorter than it was"));
            }
            self.held.extend_from_slice(&window.bytes);
            self.next = window.end();
        }
    }

    /// Where lines end that are parsed together.
    fn end_of_piece(&self) -> Option<usize> {
        let is_end = |byte: &u8| *byte == b'\n';
        let piece = self.held.get(..PIECE_BYTES).unwrap_or(&self.held);
        piece.iter().rposition(is_end).or_else(|| self.held.iter().position(is_end))
    }

    fn parse(&mut self, bytes: &[u8]) -> Result<Lines, CheckpointError> {
        let text = std::str::from_utf8(bytes).map_err(|_| CheckpointError::damaged("not UTF-8"))?;
        let mut builder = Builder::default();
        let (mut sidecars, mut has_parsed) = (Vec::new(), false);
        for line in text.lines() {
            self.number += 1;
            if line.trim().is_empty() {
                continue;
            }
            let wrong =
                |what: &dyn std::fmt::Display| CheckpointError::damaged(format!("line {}: {what}", self.number));
            let Value::Object(members) = parse_strict(line).map_err(|error| wrong(&error))? else {
                return Err(wrong(&"not an object"));
            };
            for (name, value) in members {
                has_parsed |=
                    name == "add" && PARSED.iter().any(|name| value.get(name).is_some_and(|it| !it.is_null()));
                match name.as_str() {
                    "sidecar" if !value.is_null() => {
                        sidecars.push(sidecar(&value).ok_or_else(|| wrong(&"a sidecar without path and size"))?);
                    }
                    "sidecar" | "checkpointMetadata" => {}
                    _ => builder.take(self.number, &name, value).map_err(CheckpointError::damaged)?,
                }
            }
        }
        Ok(Lines { actions: builder.actions, sidecars, has_parsed })
    }
}

fn sidecar(value: &Value) -> Option<Sidecar> {
    Some(Sidecar { path: value.get("path")?.as_str()?.to_owned(), size_bytes: value.get("sizeInBytes")?.as_u64()? })
}

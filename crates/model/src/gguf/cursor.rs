//! Reads a header from front to back and never past its end. Counts in a file are not trusted: nothing is allocated for more items
//! than the remaining bytes could hold.

use crate::ModelError;

pub(super) struct Cursor<'a> {
    file: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(file: &'a str, bytes: &'a [u8], at: usize) -> Self {
        Self { file, bytes, at }
    }

    /// A cursor at another position of the same header.
    pub(super) fn at(&self, at: usize) -> Self {
        Self { at, ..*self }
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], ModelError> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..count));
        let taken = taken.ok_or_else(|| self.refuse("the file ends in the middle of its header; was it cut off?"))?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ModelError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8, ModelError> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, ModelError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, ModelError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, ModelError> {
        self.array().map(u64::from_le_bytes)
    }

    /// The number of items of at least `item_bytes` that follow, checked against the remaining bytes.
    pub(super) fn count(&mut self, what: &str, item_bytes: usize) -> Result<usize, ModelError> {
        let count = self.u64()?;
        let room = ((self.bytes.len() - self.at) / item_bytes) as u64;
        if count > room {
            return Err(self.refuse(&format!("{count} {what} are more than the file could hold; was it cut off?")));
        }
        Ok(count as usize)
    }

    pub(super) fn text(&mut self, what: &str, max_bytes: usize) -> Result<&'a str, ModelError> {
        let length = self.u64()?;
        if length > max_bytes as u64 {
            return Err(self.refuse(&format!("{what} of {length} bytes; at most {max_bytes} are allowed")));
        }
        let bytes = self.take(length as usize)?;
        std::str::from_utf8(bytes).map_err(|_| self.refuse(&format!("{what} is not valid UTF-8")))
    }

    pub(super) fn refuse(&self, problem: &str) -> ModelError {
        ModelError::File { file: self.file.into(), problem: format!("{problem} (at byte {})", self.at) }
    }
}

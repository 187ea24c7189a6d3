//! Lines of a control link, split off a stream of bytes.

use super::LINE_BYTES_MAX;
use super::message::MalformedMessage;

/// Splits bytes into lines, which end with LF.
#[derive(Debug, Default)]
pub struct Lines {
    bytes: Vec<u8>,
    /// Bytes at the start that are known to hold no end of a line.
    searched: usize,
}

impl Lines {
    /// Bytes that may be pushed now: no more are held than the longest line has.
    #[must_use]
    pub fn room(&self) -> usize {
        (LINE_BYTES_MAX + 1).saturating_sub(self.bytes.len())
    }

    /// Adds received bytes, at most [`Self::room`].
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next line without its end; `None` if more bytes are needed.
    ///
    /// # Errors
    /// A line is longer than any may be.
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>, MalformedMessage> {
        let end = self.bytes[self.searched..].iter().position(|b| *b == b'\n');
        let Some(end) = end else {
            self.searched = self.bytes.len();
            return match self.searched > LINE_BYTES_MAX {
                true => Err(MalformedMessage::TooLong),
                false => Ok(None),
            };
        };
        let end = self.searched + end;
        let line = self.bytes[..end].to_vec();
        self.bytes.drain(..=end);
        self.searched = 0;
        Ok(Some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_matter_and_length_is_bounded() {
        let mut lines = Lines::default();
        for byte in b"one\n\ntw" {
            lines.push(&[*byte]);
        }
        assert_eq!(lines.next_line(), Ok(Some(b"one".to_vec())));
        assert_eq!(lines.next_line(), Ok(Some(Vec::new())));
        assert_eq!(lines.next_line(), Ok(None));
        lines.push(b"o\n");
        assert_eq!(lines.next_line(), Ok(Some(b"two".to_vec())));
        lines.push(&vec![b'x'; lines.room()]);
        assert_eq!(lines.room(), 0);
        assert_eq!(lines.next_line(), Err(MalformedMessage::TooLong));
    }
}

//! Buffers of one session: all of one size, made when first needed, never more than a bound.

/// A buffer for a piece of payload.
pub(crate) type Buffer = Box<[u8]>;

#[derive(Debug)]
pub(crate) struct BufferPool {
    free: Vec<Buffer>,
    size: usize,
    made: usize,
    max: usize,
}

impl BufferPool {
    /// A pool of at most `max` buffers of `size` bytes.
    pub(crate) fn new(size: usize, max: usize) -> Self {
        Self {
            free: Vec::new(),
            size,
            made: 0,
            max,
        }
    }

    /// The buffer used last, whose memory is the likeliest to be cached; `None` at the bound.
    pub(crate) fn take(&mut self) -> Option<Buffer> {
        self.free.pop().or_else(|| {
            (self.made < self.max).then(|| {
                self.made += 1;
                vec![0; self.size].into_boxed_slice()
            })
        })
    }

    /// Takes a buffer back.
    pub(crate) fn give(&mut self, buffer: Buffer) {
        debug_assert_eq!(buffer.len(), self.size, "a buffer of another pool");
        self.free.push(buffer);
    }

    /// Whether less than half of the bound can be had, so that nobody should sit on a buffer.
    pub(crate) fn is_scarce(&self) -> bool {
        (self.free.len() + self.max - self.made) * 2 < self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_than_the_bound() {
        let mut pool = BufferPool::new(8, 2);
        let a = pool.take().unwrap();
        let b = pool.take().unwrap();
        assert!(pool.take().is_none());
        assert!(pool.is_scarce());
        pool.give(a);
        pool.give(b);
        assert!(!pool.is_scarce());
        assert_eq!(pool.take().unwrap().len(), 8);
    }
}

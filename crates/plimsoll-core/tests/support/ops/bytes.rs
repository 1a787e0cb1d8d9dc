//! [`Bytes`]: a byte string read as a sequence of choices. At its end every choice is the first.

/// A byte string and the read position.
pub(crate) struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    pub(crate) const fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// Whether all bytes have been read.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads the next byte.
    pub(crate) fn byte(&mut self) -> u8 {
        let (&first, rest) = self.rest.split_first().unwrap_or((&0, &[]));
        self.rest = rest;
        first
    }

    /// Reads a random boolean.
    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Returns true once in `n` times.
    pub(crate) fn once_in(&mut self, n: u8) -> bool {
        self.byte() % n == n - 1
    }

    /// Returns a number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        let wide = usize::from(self.byte());
        let wide = if n > 256 {
            wide * 256 + usize::from(self.byte())
        } else {
            wide
        };
        wide % n
    }

    /// Chooses one of several values.
    pub(crate) fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    /// Chooses one of several values, or none.
    pub(crate) fn maybe<T: Clone>(&mut self, choices: &[T]) -> Option<T> {
        self.flag().then(|| self.one_of(choices))
    }

    /// Reads an arbitrary number.
    pub(crate) fn number(&mut self) -> u64 {
        (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }
}

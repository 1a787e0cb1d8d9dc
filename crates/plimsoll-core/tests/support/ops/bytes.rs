//! [`Bytes`]: a byte string read as choices. When it has run out every further choice is the first.

/// A byte string and how far it was read.
pub(crate) struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    pub(crate) const fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// Whether there is nothing left to read.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte.
    pub(crate) fn byte(&mut self) -> u8 {
        let (&first, rest) = self.rest.split_first().unwrap_or((&0, &[]));
        self.rest = rest;
        first
    }

    /// A coin.
    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// True once in `n` times.
    pub(crate) fn once_in(&mut self, n: u8) -> bool {
        self.byte() % n == n - 1
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        let wide = usize::from(self.byte());
        let wide = if n > 256 {
            wide * 256 + usize::from(self.byte())
        } else {
            wide
        };
        wide % n
    }

    /// One of several.
    pub(crate) fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    /// One of several, or none.
    pub(crate) fn maybe<T: Clone>(&mut self, choices: &[T]) -> Option<T> {
        self.flag().then(|| self.one_of(choices))
    }

    /// Any number.
    pub(crate) fn number(&mut self) -> u64 {
        (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }
}

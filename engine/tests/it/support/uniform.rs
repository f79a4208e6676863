//! [`Uniform`]: seeded numbers, in a file of its own because the kernels and their bench use them, too.

/// A seeded stream of uniform numbers (splitmix64).
pub(crate) struct Uniform(u64);

impl Uniform {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn integer(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut state = self.0;
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^ (state >> 31)
    }

    /// Returns a number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.integer() % limit as u64) as usize
    }

    /// Returns `count` numbers between `-scale` and `scale`.
    pub(crate) fn values(&mut self, count: usize, scale: f32) -> Vec<f32> {
        (0..count).map(|_| ((self.integer() >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * scale).collect()
    }
}

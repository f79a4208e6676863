//! Python's `random` module: the Mersenne Twister and the functions that the shop uses.

use rand_mt::Mt;

/// Python's `random.Random`, as far as the shop uses it (CPython 3.11, `Lib/random.py` and
/// `_randommodule.c`).
#[derive(Debug, Clone)]
pub(super) struct PythonRandom(Mt);

impl PythonRandom {
    /// `random.seed(seed)`.
    pub(super) fn new(seed: u64) -> Self {
        let (low, high) = (seed as u32, (seed >> 32) as u32);
        let key: &[u32] = if high == 0 { &[low] } else { &[low, high] };
        Self(Mt::new_with_key(key.iter().copied()))
    }

    /// `random.random()`: at least 0 and below 1, 53 bits.
    fn random(&mut self) -> f64 {
        let high = f64::from(self.0.next_u32() >> 5);
        let low = f64::from(self.0.next_u32() >> 6);
        (high * 67_108_864.0 + low) / 9_007_199_254_740_992.0
    }

    /// `random.uniform(low, high)`.
    pub(super) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.random()
    }

    /// A number below `end`: draws bits until one fits; 0 if `end` is 0.
    fn below(&mut self, end: u32) -> u32 {
        if end == 0 {
            return 0;
        }
        let unused = end.leading_zeros();
        loop {
            let drawn = self.0.next_u32() >> unused;
            if drawn < end {
                return drawn;
            }
        }
    }

    /// `random.sample(entries, count)`: `count` different entries, in random order; all of them if there are
    /// fewer.
    pub(super) fn sample<T: Clone>(&mut self, entries: &[T], count: usize) -> Vec<T> {
        let count = count.min(entries.len());
        if entries.len() <= pool_limit(count) {
            let mut pool = entries.to_vec();
            return (0..count).map(|_| pool.swap_remove(self.position(pool.len()))).collect();
        }
        let mut taken: Vec<usize> = Vec::with_capacity(count);
        while taken.len() < count {
            let position = self.position(entries.len());
            if !taken.contains(&position) {
                taken.push(position);
            }
        }
        taken.into_iter().filter_map(|position| entries.get(position).cloned()).collect()
    }

    /// `random.shuffle(entries)`.
    pub(super) fn shuffle<T>(&mut self, entries: &mut [T]) {
        for last in (1..entries.len()).rev() {
            let other = self.position(last + 1);
            entries.swap(last, other);
        }
    }

    fn position(&mut self, length: usize) -> usize {
        self.below(u32::try_from(length).unwrap_or(u32::MAX)) as usize
    }
}

/// The length up to which `sample` copies the list instead of remembering the drawn indices: 21, plus, for
/// more than five entries, the power of four above three times their count.
fn pool_limit(count: usize) -> usize {
    let mut set = 1;
    while count > 5 && set < count * 3 {
        set *= 4;
    }
    if count > 5 { 21 + set } else { 21 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from CPython 3.11.
    #[test]
    fn draws_what_python_draws() {
        let mut random = PythonRandom::new(4);
        assert_eq!(random.random(), 0.23604808973743452);
        assert_eq!(random.uniform(7.69, 29.59), 9.949336149652677);
        assert_eq!(random.sample(&[10, 20, 30, 40], 2), [40, 20]);
        let mut random = PythonRandom::new(233);
        let mut entries: Vec<u32> = (0..10).collect();
        random.shuffle(&mut entries);
        assert_eq!(entries, [5, 9, 0, 1, 4, 7, 6, 3, 8, 2]);
        let entries: Vec<u32> = (0..1000).collect();
        assert_eq!(random.sample(&entries, 7), [275, 239, 710, 994, 733, 14, 78]);
    }
}

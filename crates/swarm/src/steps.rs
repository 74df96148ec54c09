//! A vector that grows in steps of fixed size: growing copies nothing, so no push takes long, and
//! at most one step is unused.

/// Steps of `STEP` items, a power of two so that an index is a shift and a mask.
#[derive(Debug)]
pub(crate) struct Steps<T, const STEP: usize> {
    /// Apart from the others: most of these vectors have one step, and save an indirection.
    first: Vec<T>,
    /// All full but for the last with items. Up to two empty ones and an eighth may follow, so that
    /// a length that oscillates does not allocate and free repeatedly.
    more: Vec<Vec<T>>,
    len: usize,
}

impl<T, const STEP: usize> Default for Steps<T, STEP> {
    fn default() -> Self {
        Self { first: Vec::new(), more: Vec::new(), len: 0 }
    }
}

impl<T, const STEP: usize> Steps<T, STEP> {
    const POWER_OF_TWO: () = assert!(STEP.is_power_of_two());

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Item `at`. Panics when there is none.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> &T {
        if at < STEP { &self.first[at] } else { &self.more[at / STEP - 1][at % STEP] }
    }

    /// Item `at`, if there is one.
    #[inline]
    pub(crate) fn checked(&self, at: usize) -> Option<&T> {
        if at < STEP { self.first.get(at) } else { self.more.get(at / STEP - 1)?.get(at % STEP) }
    }

    /// Item `at`. Panics when there is none.
    #[inline]
    pub(crate) fn get_mut(&mut self, at: usize) -> &mut T {
        &mut self.step_mut(at / STEP)[at % STEP]
    }

    pub(crate) fn push(&mut self, item: T) {
        let () = Self::POWER_OF_TWO;
        let number = self.len / STEP;
        if number > self.more.len() {
            self.more.push(Vec::with_capacity(STEP));
        }
        let step = self.step_mut(number);
        if step.len() == step.capacity() {
            // The first step grows with its use.
            let more = (step.len() / 4).max(1).min(STEP - step.len());
            step.reserve_exact(more);
        }
        step.push(item);
        self.len += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        let number = self.len / STEP;
        let item = self.step_mut(number).pop();
        // At most one step per item, so that no pop takes long either.
        if self.len % STEP <= STEP / 2 && self.more.len() > number + number.div_ceil(8) {
            self.more.pop();
        }
        if number == 0 {
            self.shrink_first();
        }
        item
    }

    /// Removes item `at` and moves the last one into its place. Panics when there is none.
    pub(crate) fn swap_remove(&mut self, at: usize) -> T {
        assert!(at < self.len, "no item {at} of {}", self.len);
        let last = self.pop().expect("there is an item");
        if at == self.len { last } else { std::mem::replace(self.get_mut(at), last) }
    }

    /// Exchanges two items. Panics when one does not exist.
    pub(crate) fn swap(&mut self, a: usize, b: usize) {
        let (low, high) = (a.min(b), a.max(b));
        let (low_step, high_step) = (low / STEP, high / STEP);
        if low_step == high_step {
            return self.step_mut(low_step).swap(low % STEP, high % STEP);
        }
        // The steps behind the first are a vector of vectors.
        let (before, from) = self.more.split_at_mut(high_step - 1);
        let other = &mut from[0][high % STEP];
        let one = match low_step {
            0 => &mut self.first[low],
            step => &mut before[step - 1][low % STEP],
        };
        std::mem::swap(one, other);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.more.iter().flatten())
    }

    /// Frees the unused part of the first step when three quarters of it are empty.
    #[cold]
    fn shrink_first(&mut self) {
        if self.len == 0 {
            *self = Self::default();
        } else if self.len * 4 <= self.first.capacity() && self.more.is_empty() {
            self.first.shrink_to(self.len * 2);
        }
        if self.more.is_empty() {
            self.more = Vec::new();
        }
    }

    #[inline]
    fn step_mut(&mut self, number: usize) -> &mut Vec<T> {
        if number == 0 { &mut self.first } else { &mut self.more[number - 1] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_like_a_vector() {
        let mut steps = Steps::<u32, 4>::default();
        let mut vector = Vec::new();
        let mut state = 1u32;
        for round in 0..5_000u32 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Growing for a thousand rounds, then shrinking, and again.
            let up = if round % 2_000 < 1_000 { 3 } else { 1 };
            if state >> 30 < up || vector.is_empty() {
                steps.push(round);
                vector.push(round);
            } else {
                let at = (state >> 8) as usize % vector.len();
                assert_eq!(steps.swap_remove(at), vector.swap_remove(at));
            }
            assert_eq!(steps.len(), vector.len());
            assert!(steps.iter().eq(vector.iter()));
            let needed = vector.len() / 4;
            assert!(steps.more.len() <= needed + needed / 8 + 3, "steps are freed");
        }
        assert_eq!(steps.checked(vector.len()), None);
    }

    #[test]
    fn oscillating_around_a_boundary_allocates_nothing() {
        let mut steps = Steps::<u64, 64>::default();
        (0..64).for_each(|n| steps.push(n));
        steps.push(64);
        let swing = allocation_counter::measure(|| {
            for _ in 0..100 {
                steps.pop();
                steps.pop();
                steps.push(1);
                steps.push(2);
            }
        });
        assert_eq!(swing.count_total, 0);
        while steps.pop().is_some() {}
        assert_eq!(steps.first.capacity() + steps.more.capacity(), 0, "all memory is freed");
    }
}

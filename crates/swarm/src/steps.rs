//! A vector that grows in steps of fixed size: nothing is ever copied to make room, so no push
//! takes long, and memory is never more than a step beyond what is used.

/// Up to `STEP` items to a step, a power of two so that finding one is a shift and a mask.
#[derive(Debug)]
pub(crate) struct Steps<T, const STEP: usize> {
    /// All full but for the last with items; one empty step may follow, kept against
    /// allocating and freeing it over and over when the length swings around a boundary.
    steps: Vec<Vec<T>>,
    len: usize,
}

impl<T, const STEP: usize> Default for Steps<T, STEP> {
    fn default() -> Self {
        Self { steps: Vec::new(), len: 0 }
    }
}

impl<T, const STEP: usize> Steps<T, STEP> {
    const POWER_OF_TWO: () = assert!(STEP.is_power_of_two());

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Item number `at`. Panics when there is none.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> &T {
        &self.steps[at / STEP][at % STEP]
    }

    /// Item number `at`, or nothing.
    #[inline]
    pub(crate) fn checked(&self, at: usize) -> Option<&T> {
        self.steps.get(at / STEP)?.get(at % STEP)
    }

    /// Item number `at`. Panics when there is none.
    #[inline]
    pub(crate) fn get_mut(&mut self, at: usize) -> &mut T {
        &mut self.steps[at / STEP][at % STEP]
    }

    pub(crate) fn push(&mut self, item: T) {
        let () = Self::POWER_OF_TWO;
        let step = self.len / STEP;
        if step == self.steps.len() {
            // The first step grows as it is used: most of these vectors stay small.
            let room = if step == 0 { 1 } else { STEP };
            if self.steps.len() < 4 {
                self.steps.reserve_exact(1);
            }
            self.steps.push(Vec::with_capacity(room));
        }
        let last = &mut self.steps[step];
        if last.len() == last.capacity() {
            let more = (last.len() / 2).max(1).min(STEP - last.len());
            last.reserve_exact(more);
        }
        last.push(item);
        self.len += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        let step = self.len / STEP;
        let item = self.steps[step].pop();
        if self.len % STEP <= STEP / 2 {
            self.steps.truncate(step + 1);
        }
        if self.len == 0 {
            self.steps = Vec::new();
        }
        item
    }

    /// Takes out item number `at` and puts the last one in its place. Panics when there is none.
    pub(crate) fn swap_remove(&mut self, at: usize) -> T {
        assert!(at < self.len, "no item {at} of {}", self.len);
        let last = self.pop().expect("it has an item");
        if at == self.len { last } else { std::mem::replace(self.get_mut(at), last) }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.steps.iter().flatten()
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
            // Rising for a thousand rounds, then falling, and again.
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
            assert!(steps.steps.len() <= vector.len() / 4 + 2, "steps are given back");
        }
        assert_eq!(steps.checked(vector.len()), None);
    }

    #[test]
    fn swinging_around_a_boundary_allocates_nothing() {
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
        assert_eq!(steps.steps.capacity(), 0, "everything is given back");
    }
}

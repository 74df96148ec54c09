//! An array that the kernel holds pointers into: allocated once, never moved, reached through one
//! raw pointer so that no Rust reference claims it for itself between calls.

use std::ops::Range;
use std::ptr::{self, NonNull};

/// A fixed array of `T`.
#[derive(Debug)]
pub(super) struct Fixed<T> {
    start: NonNull<T>,
    len: usize,
}

impl Fixed<u8> {
    /// `len` zero bytes, which take memory only where they are written to.
    pub(super) fn bytes(len: usize) -> Self {
        Self::of(vec![0; len].into())
    }
}

impl<T> Fixed<T> {
    /// An array of `len` elements made by `make`.
    pub(super) fn new(len: usize, make: impl FnMut(usize) -> T) -> Self {
        Self::of((0..len).map(make).collect())
    }

    fn of(array: Box<[T]>) -> Self {
        let len = array.len();
        let start = Box::into_raw(array).cast::<T>();
        // A box is never null.
        Self { start: NonNull::new(start).expect("a box"), len }
    }

    /// How many elements there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Where element `index` is: for the kernel, and for prebuilt headers.
    #[inline]
    pub(super) fn pointer(&self, index: usize) -> *mut T {
        assert!(index < self.len, "{index} of {}", self.len);
        // SAFETY: within the allocation by the line above.
        // Reason: headers are built once and keep pointers to names, lengths and bytes; building
        // them per call costs 8 stores per datagram.
        unsafe { self.start.as_ptr().add(index) }
    }

    /// An element, to be changed.
    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> &mut T {
        // SAFETY: `pointer` checks the index; the element is initialised; the borrow of `self` is
        // exclusive, which keeps out the calls that let the kernel write (they take `&mut` too).
        // Reason: a box would claim the elements for itself whenever it moves, and headers point
        // to them all the time.
        unsafe { &mut *self.pointer(index) }
    }

    /// Some elements, to be changed.
    #[inline]
    pub(super) fn range_mut(&mut self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: within the allocation by the line above; the borrow of `self` is exclusive.
        // Reason: one check of bounds for a batch instead of one per datagram and array.
        unsafe {
            let start = self.start.as_ptr().add(range.start);
            std::slice::from_raw_parts_mut(start, range.end - range.start)
        }
    }

    /// The whole array.
    #[inline]
    pub(super) fn as_slice(&self) -> &[T] {
        // SAFETY: `start` and `len` are those of an initialised boxed slice; nobody writes while
        // `self` is borrowed.
        // Reason: as for `get_mut`; datagrams are read where the kernel wrote them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for Fixed<T> {
    fn drop(&mut self) {
        let array = ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len);
        // SAFETY: `new` took this very slice out of its box, and nobody else gives it back.
        drop(unsafe { Box::from_raw(array) });
    }
}

// SAFETY: a `Fixed` owns its elements as a box does; sending it is sending them.
unsafe impl<T: Send> Send for Fixed<T> {}

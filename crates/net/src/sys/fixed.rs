//! An array that the kernel holds pointers into: allocated once, never moved, accessed through one
//! raw pointer, so that no Rust reference claims exclusive access between calls.

use std::ops::Range;
use std::ptr::{self, NonNull};

/// A fixed array of `T`.
#[derive(Debug)]
pub(super) struct Fixed<T> {
    start: NonNull<T>,
    len: usize,
}

impl Fixed<u8> {
    /// `len` zero bytes; the kernel backs them with memory only where they are written.
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

    /// The number of elements.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The address of element `index`: for the kernel, and for prebuilt headers.
    #[inline]
    pub(super) fn pointer(&self, index: usize) -> *mut T {
        assert!(index < self.len, "{index} of {}", self.len);
        // SAFETY: within the allocation by the line above.
        // Reason: headers are built once and keep pointers to names, lengths and bytes; building
        // them per call costs 8 stores per datagram.
        unsafe { self.start.as_ptr().add(index) }
    }

    /// A mutable element.
    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> &mut T {
        // SAFETY: `pointer` checks the index; the element is initialised; the borrow of `self` is
        // exclusive, which keeps out the calls that let the kernel write (they take `&mut` too).
        // Reason: a box would claim exclusive access to the elements whenever it moves, while
        // headers keep pointers to them.
        unsafe { &mut *self.pointer(index) }
    }

    /// Mutable elements.
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
        // SAFETY: `start` and `len` are those of an initialised boxed slice; nothing writes while
        // `self` is borrowed.
        // Reason: as for `get_mut`; datagrams are read where the kernel wrote them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for Fixed<T> {
    fn drop(&mut self) {
        let array = ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len);
        // SAFETY: `new` took this slice out of its box, and it is returned only here.
        drop(unsafe { Box::from_raw(array) });
    }
}

// SAFETY: a `Fixed` owns its elements as a box does; sending it sends them.
unsafe impl<T: Send> Send for Fixed<T> {}

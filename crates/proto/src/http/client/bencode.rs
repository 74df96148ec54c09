//! A strict reader of bencoding (BEP 3, "bencoding"): numbers and lengths have one form, and the
//! keys of a dictionary ascend.

use super::BadReply;

/// Dictionaries and lists within each other, at most.
const DEPTH: u32 = 16;

/// What is left of a bencoded text.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
    depth: u32,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { rest: text, depth: 0 }
    }

    /// Whether the text has ended.
    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Whether a value of the kind with this first byte is next.
    pub(super) fn is_next(&self, first: u8) -> bool {
        self.rest.first() == Some(&first)
    }

    fn take(&mut self, byte: u8) -> Result<(), BadReply> {
        self.rest = self.rest.strip_prefix(&[byte]).ok_or(BadReply::Bencoding)?;
        Ok(())
    }

    /// Digits without leading zeros; saturates.
    fn digits(&mut self) -> Result<u64, BadReply> {
        let count = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at(count);
        if digits.is_empty() || digits.starts_with(b"0") && count > 1 {
            return Err(BadReply::Bencoding);
        }
        self.rest = rest;
        let add =
            |sum: u64, byte: &u8| sum.saturating_mul(10).saturating_add(u64::from(byte - b'0'));
        Ok(digits.iter().fold(0, add))
    }

    /// A number: `None` for one that is negative or does not fit.
    pub(super) fn number(&mut self) -> Result<Option<u32>, BadReply> {
        if !self.is_next(b'i') {
            return Err(self.other_type());
        }
        self.take(b'i')?;
        let is_negative = self.is_next(b'-');
        if is_negative {
            self.take(b'-')?;
        }
        let number = self.digits()?;
        self.take(b'e')?;
        match is_negative {
            true if number == 0 => Err(BadReply::Bencoding),
            true => Ok(None),
            false => Ok(u32::try_from(number).ok()),
        }
    }

    pub(super) fn string(&mut self) -> Result<&'a [u8], BadReply> {
        if self.rest.first().is_some_and(|byte| b"ild".contains(byte)) {
            return Err(self.other_type());
        }
        let length = self.digits()?;
        self.take(b':')?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let (string, rest) = self.rest.split_at_checked(length).ok_or(BadReply::Bencoding)?;
        self.rest = rest;
        Ok(string)
    }

    /// A dictionary: `each` reads the value of each key.
    pub(super) fn dictionary(
        &mut self,
        mut each: impl FnMut(&'a [u8], &mut Self) -> Result<(), BadReply>,
    ) -> Result<(), BadReply> {
        let mut before = None;
        self.container(b'd', |cursor| {
            let key = cursor.string().map_err(|_| BadReply::Bencoding)?;
            if before.is_some_and(|before| before >= key) {
                return Err(BadReply::KeyOrder);
            }
            before = Some(key);
            each(key, cursor)
        })
    }

    /// A list: `each` reads each value.
    pub(super) fn list(
        &mut self,
        each: impl FnMut(&mut Self) -> Result<(), BadReply>,
    ) -> Result<(), BadReply> {
        self.container(b'l', each)
    }

    fn container(
        &mut self,
        first: u8,
        mut each: impl FnMut(&mut Self) -> Result<(), BadReply>,
    ) -> Result<(), BadReply> {
        if !self.is_next(first) {
            return Err(self.other_type());
        }
        self.take(first)?;
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(BadReply::Bencoding);
        }
        while !self.is_next(b'e') {
            each(self)?;
        }
        self.depth -= 1;
        self.take(b'e')
    }

    /// Any value.
    pub(super) fn skip(&mut self) -> Result<(), BadReply> {
        match self.rest.first() {
            Some(b'i') => self.number().map(drop),
            Some(b'l') => self.list(Self::skip),
            Some(b'd') => self.dictionary(|_, cursor| cursor.skip()),
            _ => self.string().map(drop),
        }
    }

    /// The fault of a value of another type than the expected one: that, if the value is valid.
    fn other_type(&self) -> BadReply {
        let mut copy = *self;
        copy.skip().err().unwrap_or(BadReply::Value)
    }
}

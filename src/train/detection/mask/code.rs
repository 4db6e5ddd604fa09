//! COCO's compressed run lengths: text with 6 bits per character.
//!
//! From the fourth length on, the text stores the difference to the length two before it (the previous one of the same kind). A
//! number consists of groups of five bits in two's complement, lowest group first. A sixth bit of value 32 marks that more groups
//! follow. The character's ASCII code is the group's value plus 48. The highest bit of the last group is the sign.

use super::{Mask, MaskError, Size};

const FIRST: u8 = 48;
const GROUP: u8 = 0x1f;
const MORE: u8 = 0x20;
const SIGN: u8 = 0x10;

/// Seven groups hold 35 bits, enough for the difference of two 32-bit lengths.
const MAX_GROUPS: u32 = 7;

impl Mask {
    /// COCO's compressed form, in ASCII.
    #[cfg(test)]
    pub fn to_compressed(&self) -> String {
        let mut text = String::new();
        for (place, count) in self.counts.iter().enumerate() {
            let before = if place > 2 { self.counts[place - 2] } else { 0 };
            write(i64::from(*count) - i64::from(before), &mut text);
        }
        text
    }

    /// A mask from COCO's compressed form. Fails if the text is invalid or has another number of pixels.
    pub fn from_compressed(size: Size, text: &str) -> Result<Self, MaskError> {
        let mut counts: Vec<u32> = Vec::new();
        let (mut number, mut groups) = (0_i64, 0);
        for (place, found) in text.chars().enumerate() {
            let bits = u8::try_from(found).ok().and_then(|code| code.checked_sub(FIRST)).filter(|bits| *bits < 64);
            let bits = bits.ok_or(MaskError::Character { found, place })?;
            if groups == MAX_GROUPS {
                return Err(MaskError::Length { place: counts.len() });
            }
            number |= i64::from(bits & GROUP) << (5 * groups);
            groups += 1;
            if bits & MORE != 0 {
                continue;
            }
            if bits & SIGN != 0 {
                number -= 1 << (5 * groups);
            }
            let before = if counts.len() > 2 { counts[counts.len() - 2] } else { 0 };
            let count = u32::try_from(number + i64::from(before));
            counts.push(count.map_err(|_| MaskError::Length { place: counts.len() })?);
            (number, groups) = (0, 0);
        }
        if groups > 0 {
            return Err(MaskError::CutOff);
        }
        Self::from_counts(size, &counts)
    }
}

#[cfg(test)]
fn write(mut number: i64, text: &mut String) {
    loop {
        let group = u8::try_from(number & i64::from(GROUP)).unwrap_or(0);
        number >>= 5;
        let last = number == if group & SIGN == 0 { 0 } else { -1 };
        text.push(char::from(FIRST + group + if last { 0 } else { MORE }));
        if last {
            return;
        }
    }
}

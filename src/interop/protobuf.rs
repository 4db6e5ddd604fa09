//! The part of Protocol Buffers' wire format that is needed to write and read messages.

/// A message that is being written.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<u8>);

const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const BYTES: u64 = 2;
const FIXED_32: u64 = 5;

impl Message {
    /// Adds a field of type `int32`, `int64`, `bool` or of an enumeration; negative numbers are not supported.
    pub(super) fn int(mut self, field: u64, number: u64) -> Self {
        self.tag(field, VARINT);
        self.varint(number);
        self
    }

    /// Adds a field of type `double`.
    pub(super) fn double(mut self, field: u64, number: f64) -> Self {
        self.tag(field, FIXED_64);
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// Adds a field of type `float`.
    pub(super) fn float(mut self, field: u64, number: f32) -> Self {
        self.tag(field, FIXED_32);
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// Adds a field of type `string`.
    pub(super) fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    /// Adds a field that is a message.
    pub(super) fn message(self, field: u64, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.tag(field, BYTES);
        self.varint(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.0.extend_from_slice(bytes);
        self
    }

    /// Returns the encoded message.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn tag(&mut self, field: u64, wire: u64) {
        self.varint(field << 3 | wire);
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }
}

/// A decoded field of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wire<'a> {
    /// An integer or a boolean.
    Int(u64),
    /// A `double`.
    Double(f64),
    /// A `float`.
    Float(f32),
    /// Text, bytes, a message, or packed numbers.
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    pub(super) fn bytes(self) -> Option<&'a [u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    pub(super) fn text(self) -> Option<String> {
        self.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }
}

/// Returns the fields of a message in order. Returns `None` if the bytes are not a message.
pub(super) fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Wire<'_>)>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let wire = match tag & 7 {
            VARINT => Wire::Int(varint(&mut bytes)?),
            FIXED_64 => Wire::Double(f64::from_le_bytes(*take(&mut bytes)?)),
            FIXED_32 => Wire::Float(f32::from_le_bytes(*take(&mut bytes)?)),
            BYTES => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let (own, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                Wire::Bytes(own)
            }
            _ => return None,
        };
        found.push((tag >> 3, wire));
    }
    Some(found)
}

fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (own, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(own)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let [byte] = *take(bytes)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the format's documentation: field 1 is 150, field 2 is "testing", field 3 is the first message.
    #[test]
    fn messages_match_the_examples_of_the_format() {
        let one = Message::default().int(1, 150);
        assert_eq!(one.clone().into_bytes(), [0x08, 0x96, 0x01]);
        let two = Message::default().text(2, "testing").into_bytes();
        assert_eq!(two, [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]);
        assert_eq!(Message::default().message(3, &one).into_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!(Message::default().double(1, 1.0).into_bytes(), [0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
        assert_eq!(Message::default().float(2, 1.0).into_bytes(), [0x15, 0, 0, 0x80, 0x3f]);
    }

    #[test]
    fn messages_round_trip_and_truncated_ones_are_refused() {
        let inner = Message::default().int(1, u64::MAX);
        let bytes = Message::default().text(2, "t").double(3, 0.5).float(4, 2.0).message(5, &inner).into_bytes();
        let read = fields(&bytes).unwrap();
        let expected = [(2, Wire::Bytes(b"t")), (3, Wire::Double(0.5)), (4, Wire::Float(2.0))];
        assert_eq!(read[..3], expected);
        assert_eq!(fields(read[3].1.bytes().unwrap()), Some(vec![(1, Wire::Int(u64::MAX))]));
        for cut in [1, 4, 8, 13, bytes.len() - 1] {
            assert_eq!(fields(&bytes[..cut]), None, "{cut}");
        }
        assert_eq!(fields(&[0xff; 11]), None, "a number of more than 64 bits");
    }
}

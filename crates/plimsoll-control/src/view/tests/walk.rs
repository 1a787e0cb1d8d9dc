//! A protobuf parser without descriptors: returns fields by number, as a node with another schema
//! sees a message.

/// A field of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// A varint or fixed-width number.
    Number(u64),
    /// A string or a nested message.
    Bytes(Vec<u8>),
}

/// Returns the fields of a message, in order.
pub(crate) fn fields(mut rest: &[u8]) -> Vec<(u64, Value)> {
    let mut found = Vec::new();
    while !rest.is_empty() {
        let key = varint(&mut rest);
        let value = match key & 7 {
            0 => Value::Number(varint(&mut rest)),
            1 => Value::Number(fixed(&mut rest, 8)),
            5 => Value::Number(fixed(&mut rest, 4)),
            2 => {
                let length = usize::try_from(varint(&mut rest)).unwrap();
                let (bytes, after) = rest.split_at(length);
                rest = after;
                Value::Bytes(bytes.to_vec())
            }
            other => panic!("wire type {other}"),
        };
        found.push((key >> 3, value));
    }
    found
}

/// Returns every message at a path of field numbers.
pub(crate) fn at(message: &[u8], path: &[u64]) -> Vec<Vec<u8>> {
    let Some((&number, path)) = path.split_first() else {
        return vec![message.to_vec()];
    };
    let mut found = Vec::new();
    for (field, value) in fields(message) {
        if let (true, Value::Bytes(inner)) = (field == number, value) {
            found.extend(at(&inner, path));
        }
    }
    found
}

/// Returns the number in a field, 0 if it is absent.
pub(crate) fn number(message: &[u8], field: u64) -> u64 {
    let found = fields(message).into_iter().rev();
    let numbers = found.filter_map(|(number, value)| match value {
        Value::Number(value) if number == field => Some(value),
        _ => None,
    });
    numbers.into_iter().next().unwrap_or_default()
}

/// Whether a field is present.
pub(crate) fn has(message: &[u8], field: u64) -> bool {
    fields(message).iter().any(|(number, _)| *number == field)
}

/// Returns the string in a field.
pub(crate) fn text(message: &[u8], field: u64) -> String {
    let found = at(message, &[field]).pop().unwrap_or_default();
    String::from_utf8(found).unwrap()
}

fn varint(rest: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (&byte, after) = rest.split_first().unwrap();
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

fn fixed(rest: &mut &[u8], width: usize) -> u64 {
    let (bytes, after) = rest.split_at(width);
    *rest = after;
    bytes
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

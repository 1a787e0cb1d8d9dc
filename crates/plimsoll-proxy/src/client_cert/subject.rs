//! Formats the subject of a certificate as RFC 2253 specifies, as Envoy writes it to XFCC.

use std::fmt::Write as _;

/// Attribute types with a short name: the DER encoding of the object identifier, and the name.
const NAMES: &[(&[u8], &str)] = &[
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 4], "SN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "street"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 12], "title"),
    (&[0x55, 4, 42], "GN"),
    (
        &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1],
        "emailAddress",
    ),
    (&[9, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[9, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
];
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;

/// Formats the content of a DER `Name`; parts that cannot be parsed are omitted.
pub(super) fn format(name: &[u8]) -> String {
    let mut relative_names = Vec::new();
    let mut rest = name;
    while let Some((element, after)) = read(rest) {
        relative_names.push(relative_name(element.content));
        rest = after;
    }
    // RFC 2253 begins with the last relative name.
    relative_names.reverse();
    relative_names.join(",")
}

struct Element<'a> {
    tag: u8,
    content: &'a [u8],
}

/// Reads a DER element; `None` at the end or if the length is invalid.
fn read(bytes: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let digits = usize::from(first & 0x7f);
        if digits == 0 || digits > 3 {
            return None;
        }
        let (bytes, after) = rest.split_at_checked(digits)?;
        length = bytes
            .iter()
            .fold(0, |length, byte| length << 8 | usize::from(*byte));
        rest = after;
    }
    let (content, after) = rest.split_at_checked(length)?;
    Some((Element { tag, content }, after))
}

/// Formats the attributes of a relative name, joined with `+`.
fn relative_name(set: &[u8]) -> String {
    let mut attributes = Vec::new();
    let mut rest = set;
    while let Some((attribute, after)) = read(rest) {
        rest = after;
        let Some((kind, value)) = read(attribute.content) else {
            continue;
        };
        if let Some((element, _)) = read(value) {
            attributes.push(self::attribute(kind.content, &element));
        }
    }
    attributes.join("+")
}

fn attribute(kind: &[u8], value: &Element<'_>) -> String {
    let known = NAMES.iter().find(|(id, _)| *id == kind);
    let text = matches!(value.tag, UTF8_STRING | PRINTABLE_STRING | IA5_STRING);
    match known {
        Some((_, name)) if text => format!("{name}={}", escaped(value.content)),
        _ => {
            let name = known.map_or_else(|| dotted(kind), |(_, name)| (*name).to_owned());
            let mut text = format!("{name}=#{:02X}{:02X}", value.tag, value.content.len());
            for byte in value.content {
                let _ = write!(text, "{byte:02X}");
            }
            text
        }
    }
}

fn escaped(value: &[u8]) -> String {
    let mut text = String::with_capacity(value.len());
    for (index, &byte) in value.iter().enumerate() {
        let edge = index == 0 || index + 1 == value.len();
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b'#' if index == 0 => text.push_str("\\#"),
            b' ' if edge => text.push_str("\\ "),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => {
                let _ = write!(text, "\\{byte:02X}");
            }
        }
    }
    text
}

/// Formats an object identifier with dots.
fn dotted(id: &[u8]) -> String {
    let mut arcs = Vec::new();
    let mut arc = 0_u64;
    for byte in id {
        arc = arc.wrapping_shl(7) | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if arcs.is_empty() {
                let first = (arc / 40).min(2);
                arcs.push(first.to_string());
                arc -= first * 40;
            }
            arcs.push(arc.to_string());
            arc = 0;
        }
    }
    arcs.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute_of(kind: &[u8], tag: u8, value: &str) -> Vec<u8> {
        let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap();
        let mut inner = vec![6, length(kind)];
        inner.extend(kind);
        inner.extend([tag, length(value.as_bytes())]);
        inner.extend(value.as_bytes());
        let mut sequence = vec![0x30, length(&inner)];
        sequence.extend(inner);
        let mut set = vec![0x31, length(&sequence)];
        set.extend(sequence);
        set
    }

    #[test]
    fn subjects_are_formatted_in_reverse_with_escapes() {
        let name = [
            attribute_of(&[0x55, 4, 6], PRINTABLE_STRING, "DE"),
            attribute_of(&[0x55, 4, 10], UTF8_STRING, "A, \"B\" é"),
            attribute_of(&[0x55, 4, 3], UTF8_STRING, " #x "),
            attribute_of(&[0x2a, 3, 4], UTF8_STRING, "ab"),
        ]
        .concat();
        assert_eq!(
            format(&name),
            "1.2.3.4=#0C026162,CN=\\ #x\\ ,O=A\\, \\\"B\\\" \\C3\\A9,C=DE"
        );
    }

    #[test]
    fn malformed_names_do_not_panic() {
        let name = attribute_of(&[0x55, 4, 3], UTF8_STRING, "x");
        for end in 0..name.len() {
            assert_eq!(format(&name[..end]).find("CN"), None, "{end}");
        }
        assert_eq!(format(&[0x31, 0x84, 1, 1, 1, 1]), "");
    }

    #[test]
    fn special_characters_are_escaped_where_they_are_special() {
        for (value, expected) in [
            ("a,b", "a\\,b"),
            ("+\"\\<>;", "\\+\\\"\\\\\\<\\>\\;"),
            ("#a#", "\\#a#"),
            ("  a  b  ", "\\  a  b \\ "),
            (" ", "\\ "),
            ("~\u{7f}\n", "~\\7F\\0A"),
        ] {
            assert_eq!(escaped(value.as_bytes()), expected, "{value:?}");
        }
    }

    #[test]
    fn object_identifiers_have_arcs_of_several_bytes() {
        for (id, expected) in [
            (
                &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 2][..],
                "1.2.840.113549.1.9.2",
            ),
            (&[0x55, 4, 99], "2.5.4.99"),
            (&[0x09, 0x92, 0x26], "0.9.2342"),
            // The second arc of 2 has no limit.
            (&[0x88, 0x37, 3], "2.999.3"),
        ] {
            assert_eq!(dotted(id), expected);
        }
    }

    #[test]
    fn lengths_have_up_to_three_digits() {
        let long = vec![b'x'; 0x012f];
        for prefix in [&[0x0c, 0x82, 0x01, 0x2f][..], &[0x0c, 0x83, 0, 0x01, 0x2f]] {
            let bytes = [prefix, &long, &[1, 2]].concat();
            let (element, rest) = read(&bytes).unwrap();
            assert_eq!((element.tag, element.content), (0x0c, &long[..]));
            assert_eq!(rest, [1, 2]);
        }
        let (short, _) = read(&[0x0c, 0x81, 1, 7]).unwrap();
        assert_eq!(short.content, [7]);
        let bytes = [[0x0c, 0x7f].as_slice(), &[7; 0x7f]].concat();
        let (longest, _) = read(&bytes).unwrap();
        assert_eq!(longest.content.len(), 0x7f);
        // Without digits the length is indefinite, which DER has not.
        assert!(read(&[0x0c, 0x80, 1, 7]).is_none());
        assert!(read(&[0x0c, 0x84, 0, 0, 0, 1, 7]).is_none());
        assert!(read(&[0x0c, 2, 7]).is_none(), "cut off");
    }

    #[test]
    fn attributes_of_one_relative_name_are_joined() {
        let [mut set, other] =
            ["a", "b"].map(|value| attribute_of(&[0x55, 4, 3], UTF8_STRING, value));
        set.extend(&other[2..]);
        set[1] += u8::try_from(other.len() - 2).unwrap();
        assert_eq!(format(&set), "CN=a+CN=b");
        // The value of a known attribute that is no text is printed in hexadecimal.
        assert_eq!(
            format(&attribute_of(&[0x55, 4, 3], 3, "ab")),
            "CN=#03026162"
        );
    }
}

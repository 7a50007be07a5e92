//! Writes strings between quotes, with every byte outside ASCII left raw or escaped.

use super::scan;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Writes `text` with only what JSON forces escaped: quotes, backslashes and control characters.
pub(super) fn quote(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    out.push(b'"');
    let mut done = 0;
    loop {
        let at = scan::special(bytes, done);
        out.extend_from_slice(&bytes[done..at]);
        let Some(byte) = bytes.get(at) else { break };
        escape_ascii(*byte, out);
        done = at + 1;
    }
    out.push(b'"');
}

/// As [`quote`], with 0x7f and everything outside ASCII as `\uXXXX`, in surrogate pairs where a
/// character needs two.
pub(super) fn quote_ascii(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    out.push(b'"');
    let mut done = 0;
    loop {
        let at = scan::special_or_not_ascii(bytes, done);
        out.extend_from_slice(&bytes[done..at]);
        let Some(character) = text[at..].chars().next() else { break };
        match u8::try_from(character) {
            Ok(byte) if byte.is_ascii() => escape_ascii(byte, out),
            Ok(_) | Err(_) => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    escape_unit(*unit, out);
                }
            }
        }
        done = at + character.len_utf8();
    }
    out.push(b'"');
}

fn escape_ascii(byte: u8, out: &mut Vec<u8>) {
    let short = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0c => b'f',
        _ => return escape_unit(u16::from(byte), out),
    };
    out.extend_from_slice(&[b'\\', short]);
}

fn escape_unit(unit: u16, out: &mut Vec<u8>) {
    let digit = |shift: u16| HEX[usize::from(unit >> shift & 0xf)];
    out.extend_from_slice(&[b'\\', b'u', digit(12), digit(8), digit(4), digit(0)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str, quote: fn(&str, &mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        quote(text, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn only_what_must_be_escaped_is_escaped() {
        let text = "a\"\\/\n\r\t\u{8}\u{c}\u{0}\u{1f}\u{7f}é\u{2028}😀";
        assert_eq!(
            written(text, quote),
            "\"a\\\"\\\\/\\n\\r\\t\\b\\f\\u0000\\u001f\u{7f}é\u{2028}😀\""
        );
    }

    #[test]
    fn the_ascii_form_escapes_delete_and_everything_beyond() {
        assert_eq!(
            written("~\u{7f}\u{80}é\u{ffff}\u{10000}😀/", quote_ascii),
            r#""~\u007f\u0080\u00e9\uffff\ud800\udc00\ud83d\ude00/""#
        );
        assert_eq!(written("", quote_ascii), r#""""#);
    }
}

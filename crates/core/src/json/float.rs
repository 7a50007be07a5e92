//! Lays out the shortest digits of a double the way CPython and the way ECMAScript do.
//!
//! Both take the fewest digits that read back as the same double and, of those, the nearest to it;
//! they differ in where the point goes and when an exponent is used. Rust finds the same digits but
//! for one case: a double exactly half way between two spellings, where Rust rounds up and the
//! other two take the even digit ([`ShortestDigits::settle_tie`]).

use std::fmt::{self, Write as _};

/// No double needs more digits to be distinguished from its neighbours.
const DIGITS_MAX: usize = 17;
/// `-` 17 digits `.` `e-324`, with room to spare.
const TEXT_MAX: usize = 32;
/// With fewer digits no tie is possible: a tie is a number of one digit more, and numbers of up to
/// fifteen digits are all different doubles.
const TIE_DIGITS_MIN: usize = 15;

/// `0.d₁d₂d₃… × 10^point`, the form both layouts start from.
struct ShortestDigits {
    negative: bool,
    digits: [u8; DIGITS_MAX],
    len: usize,
    point: i32,
}

impl ShortestDigits {
    /// `None` when the number is not finite.
    fn of(number: f64) -> Option<Self> {
        if !number.is_finite() {
            return None;
        }
        let mut text = Text { bytes: [0; TEXT_MAX], len: 0 };
        write!(text, "{number:e}").ok()?;
        let mut shortest = Self { negative: false, digits: [0; DIGITS_MAX], len: 0, point: 0 };
        let mut exponent: Option<(i32, i32)> = None;
        for byte in &text.bytes[..text.len] {
            match (byte, &mut exponent) {
                (b'e', _) => exponent = Some((1, 0)),
                (b'-', Some((sign, _))) => *sign = -1,
                (b'-', None) => shortest.negative = true,
                (b'0'..=b'9', Some((_, value))) => *value = *value * 10 + i32::from(byte - b'0'),
                (b'0'..=b'9', None) => {
                    *shortest.digits.get_mut(shortest.len)? = *byte;
                    shortest.len += 1;
                }
                (_, _) => {}
            }
        }
        let (sign, value) = exponent?;
        shortest.point = sign * value + 1;
        shortest.settle_tie(number);
        Some(shortest)
    }

    /// Takes the even neighbour of an odd last digit, if the double lies exactly between the two
    /// and both read back as it: 2^-25 is 2.98023223876953125e-8, and is spelt 2.9802322387695312e-8.
    fn settle_tie(&mut self, number: f64) {
        let Some(last) = self.digits().last().copied() else { return };
        if self.len < TIE_DIGITS_MIN || last % 2 == 0 {
            return;
        }
        let digits = self.digits().iter().fold(0, |sum, digit| sum * 10 + u128::from(digit - b'0'));
        let ulp_power = self.point - self.len as i32 - 1;
        for (half_way, even) in [(digits * 10 - 5, last - 1), (digits * 10 + 5, last + 1)] {
            // Above a 9 the neighbour is one digit shorter, and would have been found first.
            if even <= b'9' && is_exactly(number, half_way, ulp_power) {
                let odd = std::mem::replace(&mut self.digits[self.len - 1], even);
                if !self.reads_back(number) {
                    self.digits[self.len - 1] = odd;
                }
            }
        }
    }

    /// Not a given: just above a power of two, doubles lie closer below than above.
    fn reads_back(&self, number: f64) -> bool {
        let mut text = Vec::with_capacity(TEXT_MAX);
        self.scientific(1, &mut text);
        std::str::from_utf8(&text).is_ok_and(|text| text.parse() == Ok(number.abs()))
    }

    fn digits(&self) -> &[u8] {
        &self.digits[..self.len]
    }

    /// `123`, `12300`, `1.23` or `0.00123`: no exponent, and no `.0`.
    fn plain(&self, out: &mut Vec<u8>) {
        let digits = self.digits();
        match usize::try_from(self.point) {
            Ok(0) | Err(_) => {
                out.extend_from_slice(b"0.");
                out.extend(std::iter::repeat_n(b'0', self.point.unsigned_abs() as usize));
                out.extend_from_slice(digits);
            }
            Ok(point) if point < digits.len() => {
                out.extend_from_slice(&digits[..point]);
                out.push(b'.');
                out.extend_from_slice(&digits[point..]);
            }
            Ok(point) => {
                out.extend_from_slice(digits);
                out.extend(std::iter::repeat_n(b'0', point - digits.len()));
            }
        }
    }

    /// `1.23e-7`, with the exponent padded to `width` digits.
    fn scientific(&self, width: usize, out: &mut Vec<u8>) {
        let digits = self.digits();
        out.extend_from_slice(&digits[..1]);
        if digits.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        let exponent = self.point - 1;
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        let mut text = [0; 3];
        let mut start = text.len();
        let mut rest = exponent.unsigned_abs();
        while start > 0 && (rest > 0 || text.len() - start < width) {
            start -= 1;
            text[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        out.extend_from_slice(&text[start..]);
    }
}

/// Writes a double as CPython's `repr` does: `1.0`, `1e-05`, `1e+16`, `-0.0`. False, and nothing
/// written, when it is not finite.
#[must_use]
pub(super) fn write_repr(number: f64, out: &mut Vec<u8>) -> bool {
    let Some(shortest) = ShortestDigits::of(number) else { return false };
    if shortest.negative {
        out.push(b'-');
    }
    if !(-3..=16).contains(&shortest.point) {
        shortest.scientific(2, out);
        return true;
    }
    shortest.plain(out);
    if usize::try_from(shortest.point).is_ok_and(|point| point >= shortest.len) {
        out.extend_from_slice(b".0");
    }
    true
}

/// Writes a double as ECMAScript's `Number::toString` does: `1`, `0.00001`, `1e-7`, `1e+21`, and
/// `0` for `-0.0`. False, and nothing written, when it is not finite.
#[must_use]
pub(super) fn write_es6(number: f64, out: &mut Vec<u8>) -> bool {
    let Some(shortest) = ShortestDigits::of(number) else { return false };
    if shortest.negative && number != 0.0 {
        out.push(b'-');
    }
    if (-5..=21).contains(&shortest.point) {
        shortest.plain(out);
    } else {
        shortest.scientific(1, out);
    }
    true
}

/// Whether `|number|` is `odd × 10^power`, computed without rounding.
fn is_exactly(number: f64, odd: u128, power: i32) -> bool {
    let bits = number.to_bits();
    let (fraction, exponent) = (bits & ((1 << 52) - 1), (bits >> 52 & 0x7ff) as i32);
    let (mantissa, exponent) =
        if exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, exponent - 1075) };
    let twos = mantissa.trailing_zeros();
    // All factors of two are on one side each, so they must be equal, and the odd parts too.
    if mantissa == 0 || exponent + twos as i32 != power {
        return false;
    }
    let mantissa = u128::from(mantissa >> twos);
    let Some(fives) = 5u128.checked_pow(power.unsigned_abs()) else { return false };
    let (whole, part) = if power < 0 { (odd, mantissa) } else { (mantissa, odd) };
    part.checked_mul(fives) == Some(whole)
}

/// A short text on the stack.
struct Text {
    bytes: [u8; TEXT_MAX],
    len: usize,
}

impl fmt::Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let end = self.len + part.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        room.copy_from_slice(part.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn repr(number: f64) -> String {
        let mut out = Vec::new();
        assert!(write_repr(number, &mut out));
        String::from_utf8(out).unwrap()
    }

    fn es6(number: f64) -> String {
        let mut out = Vec::new();
        assert!(write_es6(number, &mut out));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn both_layouts_switch_to_exponents_where_their_languages_do() {
        let table: &[(f64, &str, &str)] = &[
            (0.0, "0.0", "0"),
            (-0.0, "-0.0", "0"),
            (1.0, "1.0", "1"),
            (-1.5, "-1.5", "-1.5"),
            (100.0, "100.0", "100"),
            (123.456, "123.456", "123.456"),
            (0.1, "0.1", "0.1"),
            (0.0001, "0.0001", "0.0001"),
            (0.00012, "0.00012", "0.00012"),
            (0.00001, "1e-05", "0.00001"),
            (0.000012, "1.2e-05", "0.000012"),
            (0.000001, "1e-06", "0.000001"),
            (0.0000001, "1e-07", "1e-7"),
            (1.5e-10, "1.5e-10", "1.5e-10"),
            (123456789012345.0, "123456789012345.0", "123456789012345"),
            (1e15, "1000000000000000.0", "1000000000000000"),
            (9999999999999998.0, "9999999999999998.0", "9999999999999998"),
            (1e16, "1e+16", "10000000000000000"),
            (1.2345678901234568e16, "1.2345678901234568e+16", "12345678901234568"),
            (1e20, "1e+20", "100000000000000000000"),
            (1e21, "1e+21", "1e+21"),
            (1.5e300, "1.5e+300", "1.5e+300"),
            (f64::MAX, "1.7976931348623157e+308", "1.7976931348623157e+308"),
            (5e-324, "5e-324", "5e-324"),
            (-2.2250738585072014e-308, "-2.2250738585072014e-308", "-2.2250738585072014e-308"),
        ];
        for (number, python, ecmascript) in table {
            assert_eq!(repr(*number), *python);
            assert_eq!(es6(*number), *ecmascript);
        }
    }

    #[test]
    fn a_double_half_way_between_two_spellings_takes_the_even_digit() {
        // As text, because clippy takes the last digit of such a literal for a mistake.
        let table = [
            ("2.98023223876953125e-8", "2.9802322387695312e-08", "2.9802322387695312e-8"),
            ("1424953923781206.25", "1424953923781206.2", "1424953923781206.2"),
            ("-1424953923781206.75", "-1424953923781206.8", "-1424953923781206.8"),
            ("9446341034837.3125", "9446341034837.312", "9446341034837.312"),
            ("9446341034837.3135", "9446341034837.314", "9446341034837.314"),
            ("1152921504606846976", "1.152921504606847e+18", "1152921504606847000"),
        ];
        for (number, python, ecmascript) in table {
            let number = number.parse().unwrap();
            assert_eq!(repr(number), python);
            assert_eq!(es6(number), ecmascript);
        }
    }

    #[test]
    fn a_number_that_is_not_finite_is_not_written() {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut out = Vec::new();
            assert!(!write_repr(number, &mut out));
            assert!(!write_es6(number, &mut out));
            assert!(out.is_empty());
        }
    }

    proptest! {
        #[test]
        fn every_double_reads_back_from_both_layouts(bits in any::<u64>()) {
            let number = f64::from_bits(bits);
            prop_assume!(number.is_finite());
            prop_assert_eq!(repr(number).parse::<f64>().unwrap().to_bits(), bits);
            prop_assert_eq!(es6(number).parse::<f64>().unwrap(), number);
        }
    }
}

//! Reads the text of a float as the nearest double.

/// Longest text handed to the standard library as it is. Rust stops counting the exponent at a few
/// hundred thousand, which a text with as many zeros can make up for: it would read
/// `0.000…1e700000` as 0.
const TEXT_MAX: usize = 1024;

/// No double, and no point half way between two, has more significant digits than 767; of what
/// follows, it only matters whether there is anything.
const DIGITS_MAX: usize = 767;

/// The nearest double to a number in the grammar of JSON, or `None` when it overflows.
pub(super) fn float(text: &str) -> Option<f64> {
    let number = if text.len() > TEXT_MAX { shortened(text).parse() } else { text.parse::<f64>() };
    number.ok().filter(|number| number.is_finite())
}

/// The same number as `±0.digits e exponent`, exact to the precision of a double.
#[cold]
fn shortened(text: &str) -> String {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let mut digits = String::with_capacity(DIGITS_MAX + 1);
    let mut after_point = false;
    let mut rest = false;
    let mut point: i64 = 0;
    for byte in mantissa.bytes() {
        if byte == b'.' {
            after_point = true;
            continue;
        }
        let leading_zero = digits.is_empty() && byte == b'0';
        if leading_zero {
            point -= i64::from(after_point);
            continue;
        }
        point += i64::from(!after_point);
        if digits.len() < DIGITS_MAX {
            digits.push(char::from(byte));
        } else {
            rest |= byte != b'0';
        }
    }
    if rest {
        digits.push('1');
    }
    let negative = exponent.starts_with('-');
    let size = exponent
        .trim_start_matches(['+', '-'])
        .bytes()
        .fold(0i64, |sum, digit| sum.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    let exponent = point.saturating_add(if negative { -size } else { size });
    format!("{sign}0.{digits}0e{}", exponent.clamp(-9999, 9999))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn zeros_and_exponent_may_make_up_for_each_other_at_any_length() {
        for zeros in [2000, 99_999, 655_360, 1_000_000] {
            let pad = "0".repeat(zeros);
            assert_eq!(float(&format!("12{pad}e-{zeros}")), Some(12.0));
            assert_eq!(float(&format!("0.{pad}12E{zeros}")), Some(0.12));
            assert_eq!(float(&format!("-0.{pad}12E+{zeros}")), Some(-0.12));
            assert_eq!(float(&format!("12{pad}.5e1")), None);
            assert_eq!(float(&format!("0.{pad}5e400")), Some(0.0));
            assert_eq!(float(&format!("0.{pad}5e99999999999999999999")), None);
            let zero = float(&format!("-0.{pad}e99999999999999999999"));
            assert!(zero.is_some_and(|zero| zero == 0.0 && zero.is_sign_negative()));
        }
    }

    #[test]
    fn the_last_of_many_digits_still_decides() {
        let half_way = "9007199254740993.".to_owned() + &"0".repeat(5000);
        assert_eq!(float(&(half_way.clone() + "0")), Some(9007199254740992.0));
        assert_eq!(float(&(half_way + "1")), Some(9007199254740994.0));
    }

    proptest! {
        #[test]
        fn shortening_changes_no_number(
            digits in "[1-9][0-9]{0,20}",
            zeros in 0usize..50,
            more in "[0-9]{1,900}",
            exponent in -400i32..300,
        ) {
            let text = format!("{digits}{}.{more}e{exponent}", "0".repeat(zeros));
            prop_assert_eq!(shortened(&text).parse::<f64>(), text.parse::<f64>());
            let text = format!("-0.{}{digits}{more}e{exponent}", "0".repeat(zeros));
            prop_assert_eq!(shortened(&text).parse::<f64>(), text.parse::<f64>());
        }
    }
}

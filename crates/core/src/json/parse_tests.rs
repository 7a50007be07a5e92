//! Accepted and rejected texts of the parser, case by case.

use super::*;

fn read(text: &str) -> Result<Value<'_>, JsonError> {
    parse(text.as_bytes(), &Limits::default())
}

#[track_caller]
fn refused(bytes: impl AsRef<[u8]>) -> JsonError {
    parse(bytes.as_ref(), &Limits::default()).unwrap_err()
}

#[test]
fn an_event_is_read_as_it_was_written() {
    let value = read(r#" {"a": [1, -2.5, "x", null, true, false, {}, []], "b": {"c": "é"}} "#);
    let inner = Object::from_iter([("c", "é".into())]);
    let elements = vec![
        1.into(),
        (-2.5).into(),
        "x".into(),
        Value::Null,
        true.into(),
        false.into(),
        Object::new().into(),
        Value::Array(Vec::new()),
    ];
    let object = Object::from_iter([("a", Value::Array(elements)), ("b", inner.into())]);
    assert_eq!(value, Ok(Value::Object(object)));
}

#[test]
fn text_without_escapes_is_borrowed() {
    let value = read(r#"{"key":"text","n":123}"#).unwrap();
    for (key, value) in value.as_object().unwrap().entries() {
        assert!(matches!(key, Cow::Borrowed(_)), "{key}");
        let borrowed =
            matches!(value, Value::String(Cow::Borrowed(_)) | Value::Int(Cow::Borrowed(_)));
        assert!(borrowed, "{value:?}");
    }
}

#[test]
fn escapes_are_undone() {
    let text = r#""\"\\\/\n\r\t\b\f\u0041\u00e9\u20AC\ud83d\uDE00\u0000 end""#;
    assert_eq!(read(text), Ok("\"\\/\n\r\t\u{8}\u{c}Aé€😀\u{0} end".into()));
}

#[test]
fn numbers_are_integers_only_without_point_and_exponent() {
    for (text, kind) in [("0", "integer"), ("-12", "integer"), ("1.0", "number"), ("1e2", "number")]
    {
        assert_eq!(read(text).unwrap().kind(), kind, "{text}");
    }
    assert_eq!(read("-0"), Ok(Value::Int("0".into())));
    assert_eq!(read("1E+2"), Ok(100.0.into()));
    assert_eq!(read("0e999999999999999999999"), Ok(0.0.into()));
    assert_eq!(read("1e-400"), Ok(0.0.into()));
    let Ok(Value::Float(number)) = read("-0.0") else { panic!("-0.0 is a float") };
    assert!(number.is_sign_negative());
}

#[test]
fn an_error_names_the_expectation_and_the_offset() {
    let table = [
        ("", "unexpected_end", "expected a value, found the end of the text at byte 0"),
        ("  ", "unexpected_end", "expected a value, found the end of the text at byte 2"),
        ("{\"a\":1 \"b\":2}", "expected", "expected ',' or '}' at byte 7"),
        ("[1 2]", "expected", "expected ',' or ']' at byte 3"),
        ("[1,]", "expected", "expected a value at byte 3"),
        ("[", "unexpected_end", "expected a value, found the end of the text at byte 1"),
        ("[1", "unexpected_end", "expected ',' or ']', found the end of the text at byte 2"),
        ("{,}", "expected", "expected a key or '}' at byte 1"),
        ("{\"a\":1,}", "expected", "expected a key at byte 7"),
        ("{a:1}", "expected", "expected a key or '}' at byte 1"),
        ("{\"a\" 1}", "expected", "expected ':' at byte 5"),
        ("{\"a\":}", "expected", "expected a value at byte 5"),
        ("nul", "expected", "expected 'null' at byte 0"),
        ("True", "expected", "expected a value at byte 0"),
        ("'a'", "expected", "expected a value at byte 0"),
        ("1 2", "trailing_bytes", "expected the end of the text at byte 2"),
        ("nullx", "trailing_bytes", "expected the end of the text at byte 4"),
        ("01", "leading_zero", "number has a leading zero at byte 0"),
        ("-01", "leading_zero", "number has a leading zero at byte 1"),
        ("-", "unexpected_end", "expected a digit, found the end of the text at byte 1"),
        ("1.", "unexpected_end", "expected a digit, found the end of the text at byte 2"),
        ("1.e1", "expected", "expected a digit at byte 2"),
        ("1e+", "unexpected_end", "expected a digit, found the end of the text at byte 3"),
        ("1e+-1", "expected", "expected a digit at byte 3"),
        (".5", "expected", "expected a value at byte 0"),
        ("+1", "expected", "expected a value at byte 0"),
        ("0x1", "trailing_bytes", "expected the end of the text at byte 1"),
        ("\"a", "unexpected_end", "expected '\"', found the end of the text at byte 2"),
        ("\"a\\", "unexpected_end", "expected an escape, found the end of the text at byte 3"),
        ("\"\\x\"", "unknown_escape", "unknown escape at byte 1"),
        ("\"\\u12\"", "unknown_escape", "unknown escape at byte 1"),
        ("\"\\u+123\"", "unknown_escape", "unknown escape at byte 1"),
        ("\"\\u12", "unknown_escape", "unknown escape at byte 1"),
        ("\"a\nb\"", "control_character", "control character 0x0a must be escaped at byte 2"),
        ("\"\\n\u{1}\"", "control_character", "control character 0x01 must be escaped at byte 3"),
        ("\u{a0}1", "expected", "expected a value at byte 0"),
        ("\u{c}1", "expected", "expected a value at byte 0"),
        ("// a\n1", "expected", "expected a value at byte 0"),
    ];
    for (text, kind, message) in table {
        let error = refused(text);
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, message), "{text:?}");
        assert!(message.ends_with(&format!("at byte {}", error.at())), "{text:?}");
    }
}

#[test]
fn numbers_no_double_holds_are_refused() {
    for text in ["1e400", "-1e400", "1.7976931348623159e308", "1e99999999999999999999"] {
        assert_eq!(refused(text), JsonError::NumberOverflow { at: 0 }, "{text}");
    }
    assert_eq!(read("1.7976931348623157e308"), Ok(f64::MAX.into()));
}

#[test]
fn nan_and_infinity_are_refused_by_name() {
    for text in ["[NaN]", "[Infinity]", "[-Infinity]"] {
        assert_eq!(refused(text), JsonError::NumberNotFinite { at: 1 }, "{text}");
    }
    assert_eq!(refused("[-NaN]").kind(), "expected");
}

#[test]
fn an_integer_may_have_4300_digits_and_not_one_more() {
    for sign in ["", "-"] {
        let most = format!("{sign}{}", "7".repeat(INTEGER_DIGITS_MAX));
        assert_eq!(read(&most), Ok(Value::Int(most.as_str().into())));
        let error = refused(format!("{most}7"));
        assert_eq!(error, JsonError::IntegerTooLong { digits_max: INTEGER_DIGITS_MAX, at: 0 });
    }
    assert!(read(&format!("{}.5e-5000", "7".repeat(5000))).is_ok(), "floats may be longer");
}

#[test]
fn half_a_surrogate_pair_is_refused() {
    let halves = [
        r#"["\ud83d"]"#,
        r#"["\ude00"]"#,
        r#"["\ud83d\ud83d"]"#,
        r#"["\ud83dx"]"#,
        r#"["\ud83d\n"]"#,
        r#"["\ud83d\u0041"]"#,
    ];
    for text in halves {
        assert_eq!(refused(text), JsonError::LoneSurrogate { at: 2 }, "{text}");
    }
}

#[test]
fn bytes_that_are_not_utf8_are_refused() {
    for bytes in [&b"\"\xff\""[..], b"\"\xc0\x80\"", b"\"\xed\xa0\x80\"", b"\"\xf4\x90\x80\x80\""] {
        assert_eq!(refused(bytes), JsonError::InvalidUtf8 { at: 1 });
    }
    assert_eq!(refused(b"1 \xe2\x82"), JsonError::InvalidUtf8 { at: 2 });
}

#[test]
fn a_byte_order_mark_is_refused() {
    assert_eq!(refused("\u{feff}1"), JsonError::ByteOrderMark { at: 0 });
    assert_eq!(refused("1\u{feff}"), JsonError::TrailingBytes { at: 1 });
    assert_eq!(read("\"\u{feff}\""), Ok("\u{feff}".into()));
}

#[test]
fn text_over_the_size_limit_is_refused_before_it_is_read() {
    let limits = Limits { bytes_max: 4, ..Limits::default() };
    assert!(parse(b"1234", &limits).is_ok());
    let error = parse(b"12345", &limits).unwrap_err();
    assert_eq!(error, JsonError::TooLarge { bytes_max: 4, at: 4 });
}

fn nested(depth: usize) -> String {
    let opening = (0..depth).map(|level| if level % 2 == 0 { "[" } else { "{\"a\":" });
    let closing = (0..depth).rev().map(|level| if level % 2 == 0 { "]" } else { "}" });
    opening.chain(["1"]).chain(closing).collect()
}

#[test]
fn nesting_up_to_the_limit_is_read_and_one_more_is_refused() {
    assert!(read(&nested(128)).is_ok());
    let error = refused(nested(129));
    assert!(matches!(error, JsonError::TooDeep { depth_max: 128, .. }), "{error}");
    let flat = Limits { depth_max: 0, ..Limits::default() };
    assert!(parse(b"1", &flat).is_ok());
    assert_eq!(parse(b" []", &flat).unwrap_err(), JsonError::TooDeep { depth_max: 0, at: 1 });
    assert!(read(&format!("[{}[]]", "[],{},".repeat(1000))).is_ok(), "siblings do not add up");
}

#[test]
fn a_hundred_thousand_open_brackets_are_an_error_not_a_crash() {
    for bracket in ["[", "{\"a\":", "[{\"a\":"] {
        assert_eq!(refused(bracket.repeat(100_000)).kind(), "too_deep");
    }
}

#[test]
fn no_setting_allows_more_nesting_than_a_stack_holds() {
    let limits = Limits { depth_max: usize::MAX, bytes_max: usize::MAX };
    let error = parse(&b"[".repeat(1_000_000), &limits).unwrap_err();
    assert!(matches!(error, JsonError::TooDeep { depth_max: DEPTH_CEILING, .. }), "{error}");

    let text = nested(DEPTH_CEILING);
    let value = parse(text.as_bytes(), &limits).unwrap().into_owned();
    let mut out = Vec::new();
    super::super::write(&value, &mut out);
    assert_eq!(out, text.as_bytes());
    for form in [super::super::Form::Utf8, super::super::Form::Jcs] {
        assert_eq!(super::super::canonical(&value.clone(), form).unwrap(), text.as_bytes());
    }
}

//! The canonical forms against golden vectors and as properties over random values.

use admit_core::hash::sha256_hex;
use admit_core::json::{CanonicalError, Form, Limits, Object, Value, canonical, parse};
use proptest::prelude::*;

const FORMS: [Form; 3] = [Form::Utf8, Form::Ascii, Form::Jcs];

fn read(text: &str) -> Value<'_> {
    parse(text.as_bytes(), &Limits::default()).expect("the fixture is json")
}

fn bytes(value: &Value<'_>, form: Form) -> Vec<u8> {
    canonical(value, form).expect("the value has this form")
}

#[test]
fn the_golden_torture_vector_gets_its_golden_hash() {
    let vector = read(include_str!("fixtures/json_torture.json"));
    let object = vector.get("object").expect("the vector has an object");
    let golden = vector.get("sha256").and_then(Value::as_str).expect("the vector has a hash");
    assert_eq!(sha256_hex(&bytes(object, Form::Ascii)), golden);
}

#[test]
fn jcs_writes_the_number_samples_of_the_rfc() {
    let samples = include_str!("fixtures/jcs_numbers.txt").lines().filter(|l| !l.starts_with('#'));
    let mut count = 0;
    for sample in samples {
        let (bits, expected) = sample.split_once(' ').expect("bits and text");
        let number = f64::from_bits(u64::from_str_radix(bits, 16).expect("hex"));
        let written = canonical(&number.into(), Form::Jcs);
        if expected == "refused" {
            assert_eq!(written, Err(CanonicalError::NotFinite), "{bits}");
        } else {
            assert_eq!(written.as_deref(), Ok(expected.as_bytes()), "{bits}");
        }
        count += 1;
    }
    assert_eq!(count, 26);
}

#[test]
fn jcs_writes_the_values_of_the_rfc() {
    let value = read(include_str!("fixtures/jcs_values.json"));
    let expected = include_bytes!("fixtures/jcs_values.canonical.json");
    assert_eq!(bytes(&value, Form::Jcs), expected);
}

#[test]
fn jcs_sorts_as_the_rfc_sorts() {
    let sorted = bytes(&read(include_str!("fixtures/jcs_sorting.json")), Form::Jcs);
    let sorted = read(std::str::from_utf8(&sorted).expect("utf-8")).into_owned();
    let names: Vec<_> = sorted.as_object().expect("an object").iter().map(|(_, v)| v).collect();
    let expected = [
        "Carriage Return",
        "One",
        "Control",
        "Latin Small Letter O With Diaeresis",
        "Euro Sign",
        "Emoji: Grinning Face",
        "Hebrew Letter Dalet With Dagesh",
    ];
    assert_eq!(names, expected.map(Value::from).each_ref());
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-c]{0,2}",
        1 => any::<String>(),
        1 => prop::sample::select(vec!["\u{ff5e}", "\u{10000}", "é", "\u{7f}"]).prop_map(str::to_owned),
    ]
}

/// Values without repeated keys, with integers as jcs allows them and floats whose jcs form is not
/// an integer beyond that, so that they have all three forms and read back from each.
fn value() -> impl Strategy<Value = Value<'static>> {
    let safe = (1i64 << 53) - 1;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-safe..=safe).prop_map(Value::from),
        any::<f64>()
            .prop_filter("reads back as itself", |n| {
                n.is_finite() && !(1e15..1e22).contains(&n.abs())
            })
            .prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(key(), inner, 0..6)
                .prop_map(|entries| Value::from(entries.into_iter().collect::<Object<'_>>())),
        ]
    })
}

/// Writes a value another way: its keys turned round and white space strewn in, as `dice` fall.
fn spelt_otherwise(value: &Value<'_>, dice: &mut impl Iterator<Item = u8>, out: &mut Vec<u8>) {
    if let Some(die @ 0..=3) = dice.next() {
        out.push(b" \n\t\r"[usize::from(die)]);
    }
    if let Value::Array(elements) = value {
        out.push(b'[');
        for (index, element) in elements.iter().enumerate() {
            out.extend_from_slice(if index > 0 { b"," } else { b"" });
            spelt_otherwise(element, dice, out);
        }
        out.push(b']');
    } else if let Value::Object(object) = value {
        let mut entries: Vec<_> = object.iter().collect();
        let turns = usize::from(dice.next().unwrap_or(0)) % entries.len().max(1);
        entries.rotate_left(turns);
        if dice.next().unwrap_or(0).is_multiple_of(2) {
            entries.reverse();
        }
        out.push(b'{');
        for (index, (key, value)) in entries.into_iter().enumerate() {
            out.extend_from_slice(if index > 0 { b", " } else { b"" });
            admit_core::json::write(&key.into(), out);
            out.extend_from_slice(b" :");
            spelt_otherwise(value, dice, out);
        }
        out.push(b'}');
    } else {
        admit_core::json::write(value, out);
    }
    out.push(b'\n');
}

proptest! {
    #[test]
    fn canonical_bytes_are_their_own_canonical_form(value in value()) {
        for form in FORMS {
            let once = bytes(&value, form);
            let read = parse(&once, &Limits::default()).expect("canonical bytes are json");
            prop_assert_eq!(bytes(&read, form), &once[..]);
        }
    }

    #[test]
    fn key_order_and_white_space_do_not_matter(
        value in value(),
        dice in prop::collection::vec(0u8..10, 1..40),
    ) {
        let mut text = Vec::new();
        spelt_otherwise(&value, &mut dice.iter().copied().cycle(), &mut text);
        let read = parse(&text, &Limits::default()).expect("another spelling is json");
        for form in FORMS {
            prop_assert_eq!(bytes(&read, form), bytes(&value, form));
        }
    }

    #[test]
    fn written_values_are_read_back_unchanged(value in value()) {
        let mut text = Vec::new();
        admit_core::json::write(&value, &mut text);
        prop_assert_eq!(parse(&text, &Limits::default()), Ok(value));
    }

    #[test]
    fn the_ascii_form_is_ascii_and_equivalent(value in value()) {
        let ascii = bytes(&value, Form::Ascii);
        prop_assert!(ascii.iter().all(|byte| (0x20..0x7f).contains(byte)));
        let read = parse(&ascii, &Limits::default()).expect("canonical bytes are json");
        prop_assert_eq!(bytes(&read, Form::Utf8), bytes(&value, Form::Utf8));
    }

    #[test]
    fn another_reader_understands_every_form(value in value()) {
        for form in FORMS {
            let text = bytes(&value, form);
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&text).is_ok());
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        survives(&bytes);
    }

    #[test]
    fn bytes_that_look_like_json_never_panic(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u", "d83d", "\\ude00", "0", "-", "1",
                ".", "e", "+", "null", "true", "fals", " ", "\n", "é", "😀", "\u{0}", "\"a\":",
            ]),
            0..40,
        ),
    ) {
        let text = pieces.concat();
        survives(text.as_bytes());
        for end in 0..text.len() {
            survives(&text.as_bytes()[..end]);
        }
    }
}

/// Accepted input can be written; rejected input is rejected at a valid offset.
fn survives(text: &[u8]) {
    match parse(text, &Limits::default()) {
        Ok(value) => {
            bytes(&value, Form::Utf8);
            bytes(&value, Form::Ascii);
        }
        Err(error) => assert!(error.at() <= text.len(), "{error}"),
    }
}

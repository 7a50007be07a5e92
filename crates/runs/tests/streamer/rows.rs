//! Reading rows of Parquet files: cell types, batches, errors.

use std::fs::File;
use std::sync::Arc;

use admit_core::json::{Object, Value, write_object};
use admit_runs::streamer::RunFailure;
use admit_runs::streamer::pack::rows::{PartReader, RowsError};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DoubleType, FloatType, Int32Type, Int64Type,
};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use tempfile::NamedTempFile;

use crate::synthetic::{Cells, PackColumn, write_part};

fn open(path: &NamedTempFile) -> Result<PartReader, RowsError> {
    PartReader::open(File::open(path.path()).unwrap())
}

/// All rows from `first` on, as JSON in column order.
fn read(part: &PartReader, first: u64) -> Result<Vec<String>, RunFailure> {
    let names: Vec<String> = part.names().map(str::to_owned).collect();
    let mut rows = Vec::new();
    part.rows(first, &mut |number, row| -> Result<bool, RunFailure> {
        let mut object = Object::new();
        for (column, name) in names.iter().enumerate() {
            let value: Value<'_> = row.value(column, number)?;
            object.push(name.as_str(), value);
        }
        let mut text = Vec::new();
        write_object(&object, &mut text);
        rows.push(format!("{number} {}", String::from_utf8(text).unwrap()));
        Ok(true)
    })?;
    Ok(rows)
}

/// A file with one column, written by `write`.
fn column(schema: &str, write: impl FnOnce(&mut SerializedColumnWriter<'_>)) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    let schema = Arc::new(parse_message_type(&format!("message rows {{ {schema} }}")).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let out = file.reopen().unwrap();
    let mut writer = SerializedFileWriter::new(out, schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    if let Some(mut column) = group.next_column().unwrap() {
        write(&mut column);
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    file
}

fn read_all(file: &NamedTempFile) -> Vec<String> {
    read(&open(file).unwrap(), 0).unwrap()
}

#[test]
fn every_cell_type_is_converted_exactly() {
    let i64s = column("required int64 x;", |c| {
        c.typed::<Int64Type>().write_batch(&[i64::MIN, 9_007_199_254_740_993], None, None).unwrap();
    });
    assert_eq!(read_all(&i64s), ["0 {\"x\":-9223372036854775808}", "1 {\"x\":9007199254740993}"]);
    let u64s = column("required int64 x (integer(64,false));", |c| {
        c.typed::<Int64Type>().write_batch(&[-1], None, None).unwrap();
    });
    assert_eq!(read_all(&u64s), ["0 {\"x\":18446744073709551615}"]);
    let u32s = column("required int32 x (uint_32);", |c| {
        c.typed::<Int32Type>().write_batch(&[-1], None, None).unwrap();
    });
    assert_eq!(read_all(&u32s), ["0 {\"x\":4294967295}"]);
    let i8s = column("required int32 x (int_8);", |c| {
        c.typed::<Int32Type>().write_batch(&[-5], None, None).unwrap();
    });
    assert_eq!(read_all(&i8s), ["0 {\"x\":-5}"]);
    let floats = column("required double x;", |c| {
        c.typed::<DoubleType>().write_batch(&[1.0, 0.1, -0.0, 1e16], None, None).unwrap();
    });
    assert_eq!(
        read_all(&floats),
        ["0 {\"x\":1.0}", "1 {\"x\":0.1}", "2 {\"x\":-0.0}", "3 {\"x\":1e+16}"]
    );
    let halves = column("required float x;", |c| {
        c.typed::<FloatType>().write_batch(&[0.5, 0.1], None, None).unwrap();
    });
    assert_eq!(read_all(&halves), ["0 {\"x\":0.5}", "1 {\"x\":0.10000000149011612}"]);
    let bools = column("optional boolean x;", |c| {
        c.typed::<BoolType>().write_batch(&[true, false], Some(&[1, 0, 1]), None).unwrap();
    });
    assert_eq!(read_all(&bools), ["0 {\"x\":true}", "1 {\"x\":null}", "2 {\"x\":false}"]);
    let texts = column("optional binary x (utf8);", |c| {
        let values = [ByteArray::from("a\u{e9}\"\n"), ByteArray::from("")];
        c.typed::<ByteArrayType>().write_batch(&values, Some(&[0, 1, 1]), None).unwrap();
    });
    assert_eq!(
        read_all(&texts),
        ["0 {\"x\":null}", "1 {\"x\":\"a\u{e9}\\\"\\n\"}", "2 {\"x\":\"\"}"]
    );
}

#[test]
fn an_unsupported_column_is_refused_with_its_name() {
    for schema in [
        "required int64 when (timestamp_micros);",
        "required int64 when (timestamp(nanos,true));",
        "required int32 when (date);",
        "required int32 when (decimal(5,2));",
        "required int96 when;",
        "required binary when;",
        "required fixed_len_byte_array(16) when;",
        "repeated int64 when;",
    ] {
        let file = column(schema, |_| {});
        let Err(error) = open(&file).map(drop) else { panic!("{schema} was accepted") };
        assert!(error.to_string().contains("column when"), "{schema}: {error}");
    }
    let nested = column("required group when { required int64 a; }", |c| {
        c.typed::<Int64Type>().write_batch(&[1], None, None).unwrap();
    });
    let Err(error) = open(&nested).map(drop) else { panic!("a group was accepted") };
    assert!(error.to_string().contains("column when"), "{error}");
}

#[test]
fn an_invalid_cell_is_refused_with_its_row() {
    let nan = column("required double x;", |c| {
        c.typed::<DoubleType>().write_batch(&[1.0, f64::NAN], None, None).unwrap();
    });
    let error = read(&open(&nan).unwrap(), 0).unwrap_err();
    assert!(
        error.detail_with_causes().contains("row 1, column x"),
        "{}",
        error.detail_with_causes()
    );
    let bytes = column("required binary x (utf8);", |c| {
        let values = [ByteArray::from(vec![0xff, 0xfe])];
        c.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
    });
    let error = read(&open(&bytes).unwrap(), 0).unwrap_err();
    assert!(error.detail_with_causes().contains("not UTF-8"), "{}", error.detail_with_causes());
}

fn numbered(rows: std::ops::Range<i64>) -> Vec<PackColumn> {
    let texts = rows.clone().map(|n| (n % 3 != 0).then(|| format!("t{n}"))).collect();
    vec![("n", Cells::Int(rows.collect())), ("t", Cells::MaybeText(texts))]
}

#[test]
fn reading_resumes_at_any_row_across_groups_and_batches() {
    let file = NamedTempFile::new().unwrap();
    let groups = [0..1_300, 1_300..1_301, 1_301..2_000];
    write_part(file.path(), groups.map(numbered)).unwrap();
    let part = open(&file).unwrap();
    assert_eq!(part.len(), 2_000);
    let all = read(&part, 0).unwrap();
    assert_eq!(all.len(), 2_000);
    assert_eq!(all[1_299], "1299 {\"n\":1299,\"t\":null}");
    assert_eq!(all[1_300], "1300 {\"n\":1300,\"t\":\"t1300\"}");
    for first in [1, 511, 512, 513, 1_299, 1_300, 1_301, 1_999, 2_000] {
        let rest = read(&part, first).unwrap();
        assert_eq!(rest, all[usize::try_from(first).unwrap()..], "from {first}");
    }
}

#[test]
fn reading_stops_when_the_callback_returns_false() {
    let file = NamedTempFile::new().unwrap();
    write_part(file.path(), [numbered(0..1_000)]).unwrap();
    let mut seen = 0;
    let stop = &mut |number, _: &admit_runs::streamer::pack::rows::PackRow<'_>| {
        seen = number;
        Ok::<bool, RunFailure>(number < 600)
    };
    open(&file).unwrap().rows(0, stop).unwrap();
    assert_eq!(seen, 600);
}

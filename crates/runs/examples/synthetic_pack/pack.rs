//! Generator of packs: Parquet files with synthetic rows, deterministic by seed.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

/// World of the pack that the bundles are copied from.
const MANIFEST_FINGERPRINT: &str =
    "c8fd43cd60ce0ede0c63d2ceb4610f167c9b107e1d59b9b8c7d7b8d0028b05c8";
const PARAMETER_HASH: &str = "56d45126eaabedd083a1d8428a763e0278c89efec5023cfd6cf3cab7fc8dd2d7";
const SCENARIO: &str = "baseline_v1";
const SEED: i64 = 42;

/// The cells of one column.
#[derive(Clone, Debug)]
pub(crate) enum Cells {
    /// Integers.
    Int(Vec<i64>),
    /// Floats.
    Float(Vec<f64>),
    /// Texts.
    Text(Vec<String>),
    /// Nullable texts.
    MaybeText(Vec<Option<String>>),
    /// Booleans.
    Bool(Vec<bool>),
}

/// A column with its name.
pub(crate) type PackColumn = (&'static str, Cells);

/// Writes one part file; each of `groups` becomes a row group.
pub(crate) fn write_part(
    path: &Path,
    groups: impl IntoIterator<Item = Vec<PackColumn>>,
) -> Result<(), ParquetError> {
    let mut groups = groups.into_iter().peekable();
    let fields: String = groups.peek().into_iter().flatten().map(field).collect();
    let schema = Arc::new(parse_message_type(&format!("message rows {{ {fields} }}"))?);
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = SerializedFileWriter::new(File::create(path)?, schema, Arc::new(properties))?;
    for group in groups {
        let mut out = writer.next_row_group()?;
        for (_, cells) in group {
            write_cells(&mut out, cells)?;
        }
        out.close()?;
    }
    writer.close()?;
    Ok(())
}

fn field((name, cells): &PackColumn) -> String {
    match cells {
        Cells::Int(_) => format!("required int64 {name}; "),
        Cells::Float(_) => format!("required double {name}; "),
        Cells::Text(_) => format!("required binary {name} (utf8); "),
        Cells::MaybeText(_) => format!("optional binary {name} (utf8); "),
        Cells::Bool(_) => format!("required boolean {name}; "),
    }
}

fn write_cells(
    out: &mut SerializedRowGroupWriter<'_, File>,
    cells: Cells,
) -> Result<(), ParquetError> {
    let text = |text: String| ByteArray::from(text.into_bytes());
    let Some(mut column) = out.next_column()? else { return Ok(()) };
    match cells {
        Cells::Int(values) => column.typed::<Int64Type>().write_batch(&values, None, None),
        Cells::Float(values) => column.typed::<DoubleType>().write_batch(&values, None, None),
        Cells::Bool(values) => column.typed::<BoolType>().write_batch(&values, None, None),
        Cells::Text(values) => {
            let values: Vec<ByteArray> = values.into_iter().map(text).collect();
            column.typed::<ByteArrayType>().write_batch(&values, None, None)
        }
        Cells::MaybeText(values) => {
            let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
            let values: Vec<ByteArray> = values.into_iter().flatten().map(text).collect();
            column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)
        }
    }?;
    column.close()
}

/// Parameters of a synthetic pack.
#[derive(Clone, Debug)]
pub(crate) struct SyntheticPack {
    /// Rows of each output; rounded up to whole parts.
    pub(crate) rows: u64,
    /// Rows of a part file.
    pub(crate) part_rows: u64,
    /// Rows of a row group.
    pub(crate) group_rows: u64,
    /// Seed of the random numbers.
    pub(crate) seed: u64,
    /// Rows that share a flow or a merchant.
    pub(crate) per_flow: u64,
}

/// The outputs of the mode `fraud`.
pub(crate) const OUTPUTS: [&str; 4] = [
    "s3_event_stream_with_fraud_6B",
    "arrival_events_5B",
    "s1_arrival_entities_6B",
    "s3_flow_anchor_with_fraud_6B",
];

impl SyntheticPack {
    /// Writes the pack to `root`: receipt and gate bundles are copied from the pack `from`, views are
    /// generated.
    pub(crate) fn write(&self, root: &Path, from: &Path) -> io::Result<()> {
        copy(from, root)?;
        for output in OUTPUTS {
            let view = root.join(format!("stream_view/ts_utc/output_id={output}"));
            if view.exists() {
                fs::remove_dir_all(&view)?;
            }
            fs::create_dir_all(&view)?;
            let id = format!("{{\"output_id\":\"{output}\"}}");
            fs::write(view.join("_stream_view_manifest.json"), id)?;
            fs::write(view.join("_stream_sort_receipt.json"), "{\"status\":\"OK\"}")?;
            let mut chance = RandomSource(self.seed ^ output.len() as u64);
            for part in 0..self.rows.div_ceil(self.part_rows) {
                let first = part * self.part_rows;
                let end = (first + self.part_rows).min(self.rows);
                let starts = (first..end).step_by(usize::try_from(self.group_rows).unwrap_or(1));
                let groups = starts.map(|start| {
                    self.group(output, start..(start + self.group_rows).min(end), &mut chance)
                });
                let path = view.join(format!("part-{part:06}.parquet"));
                write_part(&path, groups).map_err(io::Error::other)?;
            }
        }
        Ok(())
    }

    fn group(
        &self,
        output: &str,
        rows: std::ops::Range<u64>,
        chance: &mut RandomSource,
    ) -> Vec<PackColumn> {
        let per_flow = self.per_flow.max(1);
        let int = |make: &mut dyn FnMut(u64) -> u64| {
            Cells::Int(rows.clone().map(|row| make(row).cast_signed()).collect())
        };
        let flow = |row: u64| 1_000 + row / per_flow;
        let merchant = |row: u64| 1 + row / per_flow;
        let mut columns = vec![("ts_utc", Cells::Text(rows.clone().map(at).collect()))];
        match output {
            "s3_event_stream_with_fraud_6B" => {
                columns.push(("flow_id", int(&mut |row| flow(row))));
                columns.push(("event_seq", int(&mut |row| row % per_flow)));
                let kinds = ["AUTH_REQUEST", "AUTH_RESPONSE", "CLEARING"];
                let kind = |row: u64| kinds[(row % 3) as usize].to_owned();
                columns.push(("event_type", Cells::Text(rows.clone().map(kind).collect())));
            }
            "arrival_events_5B" => {
                columns.push(("merchant_id", int(&mut |row| merchant(row))));
                columns.push(("arrival_seq", int(&mut |row| 1 + row % per_flow)));
                columns.push(("bucket_index", int(&mut |row| row / 60)));
                let same =
                    |text: &str| Cells::Text(rows.clone().map(|_| text.to_owned()).collect());
                columns.push(("zone_representation", same("settlement")));
                columns.push(("tzid_primary", same("Europe/London")));
                columns.push(("ts_local_primary", Cells::Text(rows.clone().map(at).collect())));
                let is_virtual = rows.clone().map(|_| chance.next().is_multiple_of(10)).collect();
                columns.push(("is_virtual", Cells::Bool(is_virtual)));
            }
            _ => {
                let is_anchor = output.contains("flow_anchor");
                if is_anchor {
                    columns.push(("flow_id", int(&mut |row| 1_000 + row)));
                } else {
                    columns.push(("session_id", int(&mut |_| chance.next() >> 40)));
                }
                columns.push(("merchant_id", int(&mut |row| merchant(row))));
                columns.push(("arrival_seq", int(&mut |row| 1 + row % per_flow)));
                for name in ["party_id", "account_id", "instrument_id", "device_id", "ip_id"] {
                    columns.push((name, int(&mut |_| 1 + (chance.next() >> 40))));
                }
            }
        }
        if output.starts_with("s3_") {
            let amounts = rows.clone().map(|_| (chance.next() % 1_000_000) as f64 / 100.0);
            columns.push(("amount", Cells::Float(amounts.collect())));
            let fraud: Vec<bool> = rows.clone().map(|_| chance.next().is_multiple_of(50)).collect();
            let campaign = |is_fraud: &bool| is_fraud.then(|| "campaign-1".to_owned());
            columns.push(("campaign_id", Cells::MaybeText(fraud.iter().map(campaign).collect())));
            columns.push(("fraud_flag", Cells::Bool(fraud)));
        }
        columns.extend(pins(rows.clone().count()));
        columns
    }
}

/// Pin columns of every row.
fn pins(rows: usize) -> [PackColumn; 4] {
    let same = |text: &str| Cells::Text(vec![text.to_owned(); rows]);
    [
        ("seed", Cells::Int(vec![SEED; rows])),
        ("manifest_fingerprint", same(MANIFEST_FINGERPRINT)),
        ("parameter_hash", same(PARAMETER_HASH)),
        ("scenario_id", same(SCENARIO)),
    ]
}

/// Timestamps: one row every 10 ms from 2026-01-01 on.
fn at(row: u64) -> String {
    let (seconds, hundredths) = (row / 100, row % 100);
    let (day, rest) = (1 + seconds / 86_400, seconds % 86_400);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("2026-01-{day:02}T{hour:02}:{minute:02}:{second:02}.{hundredths:02}0000Z")
}

/// Deterministic pseudo-random numbers.
struct RandomSource(u64);

impl RandomSource {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Copies a folder recursively.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            // Write a new file instead of copying its permissions: it must be writable.
            File::create(&target)?.write_all(&fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

/// Facts of a run on a pack at `engine_root`, as its runner would commit them.
pub(crate) fn facts(run: &str, engine_root: &str) -> String {
    let (run_id, hash) = ("df5647f07d4f430de9cfde91f3a454b6", "b1".repeat(32));
    let locators: Vec<String> = OUTPUTS
        .iter()
        .map(|id| format!("{{\"output_id\":\"{id}\",\"path\":\"data/{id}\"}}"))
        .collect();
    format!(
        "{{\"run_id\":\"{run_id}\",\"platform_run_id\":\"{run}\",\"scenario_run_id\":\"{run_id}\",\
         \"pins\":{{\"platform_run_id\":\"{run}\",\"scenario_run_id\":\"{run_id}\",\
         \"manifest_fingerprint\":\"{MANIFEST_FINGERPRINT}\",\"parameter_hash\":\"{PARAMETER_HASH}\",\
         \"seed\":{SEED},\"scenario_id\":\"{SCENARIO}\",\"run_id\":\"{run_id}\"}},\
         \"locators\":[{}],\"gate_receipts\":[{{\"gate_id\":\"6B\",\"status\":\"PASS\",\"scope\":{{}}}}],\
         \"policy_rev\":{{}},\"bundle_hash\":\"{hash}\",\"plan_ref\":\"p\",\"record_ref\":\"r\",\
         \"status_ref\":\"s\",\"oracle_pack_ref\":{{\"engine_run_root\":\"{engine_root}\"}}}}",
        locators.join(",")
    )
}

/// READY for that run, with its facts at `facts_ref`.
pub(crate) fn ready(run: &str, facts_ref: &str, engine_root: &str, message_id: &str) -> String {
    let (run_id, hash) = ("df5647f07d4f430de9cfde91f3a454b6", "b1".repeat(32));
    format!(
        "{{\"topic\":\"fp.bus.control.v1\",\"message_id\":\"{message_id}\",\
         \"attributes\":{{\"kind\":\"READY\",\"run_id\":\"{run_id}\"}},\"partition_key\":\"{run_id}\",\
         \"payload\":{{\"run_id\":\"{run_id}\",\"platform_run_id\":\"{run}\",\
         \"scenario_run_id\":\"{run_id}\",\"facts_view_ref\":\"{facts_ref}\",\
         \"bundle_hash\":\"{hash}\",\"message_id\":\"{message_id}\",\"run_config_digest\":\"{hash}\",\
         \"manifest_fingerprint\":\"{MANIFEST_FINGERPRINT}\",\"parameter_hash\":\"{PARAMETER_HASH}\",\
         \"scenario_id\":\"{SCENARIO}\",\
         \"oracle_pack_ref\":{{\"engine_run_root\":\"{engine_root}\"}}}}}}"
    )
}

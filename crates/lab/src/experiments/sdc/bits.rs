//! What SDC costs in bits: arithmetic, no run.

use super::SDCBITS;
use crate::prelude::*;
use overbank_sdc::bits::{Cost, STATUS_BITS, cost};
use overbank_sdc::{Level, SdcShape, Shape};

struct Row {
    name: String,
    slot_bytes: u32,
    cost: Cost,
}

fn row(name: &str, llc: Level, sdc: SdcShape, slot_bytes: u32, status: u32) -> Option<Row> {
    let cost = cost(&llc, &sdc, slot_bytes, status)?;
    Some(Row { name: name.to_owned(), slot_bytes, cost })
}

const CLAIMS: &[Claim<[Row]>] = &[
    Claim::new("bits of a line's slots, 40 MB of 20 ways", "56", |rows: &[Row]| {
        let bits = rows.first()?.cost.slots;
        Finding::new(bits == 56, bits.to_string())
    }),
    Claim::new("bits added to a line", "36, 7 %", |rows: &[Row]| {
        let Cost { extra, share, .. } = rows.first()?.cost;
        Finding::new(
            (extra, percent(share, 0).as_str()) == (36, "7 %"),
            format!("{extra}, {}", percent(share, 0)),
        )
    }),
    Claim::new("slots of 16 bytes, one status bit less", "0.78 %", |rows: &[Row]| {
        let share = percent(rows.get(1)?.cost.share, 2);
        Finding::new(share == "0.78 %", share)
    }),
];

pub fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    context.step("bits", 0.0)?;
    let paper = Level { bytes: 40 << 20, ways: 20, cycles: 0 };
    let short = SdcShape { sub_tag_bits: 4, ..SdcShape::paper() };
    let (simulated, modern) = (Shape::paper().llc, Shape::modern().llc);
    let families = [1u32, 2, 4, 8].map(|family| {
        let sdc = SdcShape { family, sub_tag_bits: 3 + family.ilog2(), ..SdcShape::paper() };
        row(&format!("3 MB, 12 ways, family {family}"), simulated, sdc, 8, STATUS_BITS)
    });
    let rows = [
        row("40 MB, 20 ways, family 4 (paper, section 2.3)", paper, short, 8, STATUS_BITS),
        row("the same, slots of 16 bytes", paper, short, 16, STATUS_BITS - 1),
    ];
    let today = row("32 MB, 16 ways, family 4", modern, SdcShape::paper(), 8, STATUS_BITS);
    let rows: Vec<Row> = rows.into_iter().chain(families).chain([today]).flatten().collect();
    let mut record = SDCBITS.record(context);
    record.judge("", CLAIMS, &rows[..]);
    record.note(
        "The paper prints (6 × 4 × 20) / 512 where (6 × 4 − 20) / 512 is meant, and says that the \
         reference bit is saved; only the sequence bit can be, since CLOCK needs the other.",
    );
    record.tables.push(Table::of(
        "Bits of a line",
        &rows,
        &[
            ("cache", &|of| of.name.clone()),
            ("bytes of a slot", &|of| of.slot_bytes.to_string()),
            ("regular tag", &|of| of.cost.regular_tag.to_string()),
            ("SDC's tag", &|of| of.cost.sdc_tag.to_string()),
            ("slots", &|of| of.cost.slots.to_string()),
            ("added", &|of| of.cost.extra.to_string()),
            ("of 512", &|of| percent(of.cost.share, 2)),
        ],
    ));
    Ok(record)
}

//! Parses the text of a [`PortSpec`]. Errors are one line without the text.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use super::{PortKind, PortSpec};
use crate::afpacket::{AfPacketOptions, RingKind};
use crate::afxdp::{self, AfXdpOptions};
use crate::fault::{FaultOn, FaultOptions};
use crate::looped::MemoryOptions;
use crate::pcap::PcapOptions;
use crate::tap::TapOptions;

type Parsed<T> = Result<T, String>;

/// Options of every kind.
const COMMON: &[&str] =
    &["loss", "corrupt", "reorder", "duplicate", "fault-seed", "fault-on", "dump"];

/// The pieces after the kind.
struct Given<'a> {
    argument: Option<&'a str>,
    options: Vec<(&'a str, &'a str)>,
}

pub(super) fn spec(text: &str) -> Parsed<PortSpec> {
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    let mut given = Given::new(rest)?;
    let (kind, own): (_, &[&str]) = match kind {
        "afpacket" => (af_packet(&mut given)?, &["ring", "ring-mib", "promiscuous"]),
        "afxdp" => (af_xdp(&mut given)?, &["mode", "xdp", "frames", "promiscuous"]),
        "tap" => (tap(&mut given)?, &["offload", "mtu"]),
        "pcap" => (pcap(&mut given)?, &["in", "out", "pace"]),
        "memory" => (memory(&mut given)?, &["flows", "size", "file", "limit", "keep"]),
        _ => {
            return Err(
                "expected KIND:ARGUMENT with one of the kinds afpacket, afxdp, tap, pcap, \
                        memory"
                    .to_owned(),
            );
        }
    };
    let faults = faults(&mut given)?;
    let dump = given.path("dump")?;
    if let Some((name, _)) = given.options.first() {
        let known = [own, COMMON].concat().join(", ");
        return Err(format!("unknown option `{}`, expected one of {known}", name.escape_debug()));
    }
    Ok(PortSpec { kind, faults, dump })
}

fn af_packet(given: &mut Given<'_>) -> Parsed<PortKind> {
    let interface = given.interface()?;
    let usual = AfPacketOptions::default();
    let ring = given.one_of("ring", &[("v2", RingKind::V2), ("v3", RingKind::V3)])?;
    let options = AfPacketOptions {
        ring: ring.unwrap_or(usual.ring),
        ring_mib: given
            .number("ring-mib", 1..=AfPacketOptions::RING_MIB_MAX)?
            .unwrap_or(usual.ring_mib),
        promiscuous: given.yes_no("promiscuous")?.unwrap_or(usual.promiscuous),
    };
    Ok(PortKind::AfPacket { interface, options })
}

fn af_xdp(given: &mut Given<'_>) -> Parsed<PortKind> {
    let interface = given.interface()?;
    let mut options = AfXdpOptions::default();
    if let Some(mode) = given.take("mode") {
        options.mode = mode.parse().map_err(|e| format!("mode: {e}"))?;
    }
    if let Some(xdp) = given.take("xdp") {
        options.xdp = xdp.parse().map_err(|e| format!("xdp: {e}"))?;
    }
    if let Some(frames) = given.number("frames", afxdp::FRAMES_MIN..=afxdp::FRAMES_MAX)? {
        if !frames.is_power_of_two() {
            return Err(format!("frames={frames}, expected a power of two"));
        }
        options.frames = frames;
    }
    options.promiscuous = given.yes_no("promiscuous")?.unwrap_or(options.promiscuous);
    Ok(PortKind::AfXdp { interface, options })
}

fn tap(given: &mut Given<'_>) -> Parsed<PortKind> {
    let interface = given.interface()?;
    let options = TapOptions {
        offload: given.yes_no("offload")?.unwrap_or(TapOptions::default().offload),
        mtu: given.number("mtu", TapOptions::MTU_MIN..=TapOptions::MTU_MAX)?,
    };
    Ok(PortKind::Tap { interface, options })
}

fn pcap(given: &mut Given<'_>) -> Parsed<PortKind> {
    let argument = given.argument.take().map(PathBuf::from);
    let input = given.path("in")?;
    if argument.is_some() && input.is_some() {
        return Err("two captures to read, expected one".to_owned());
    }
    let options = PcapOptions {
        input: argument.or(input),
        output: given.path("out")?,
        pace: given.yes_no("pace")?.unwrap_or(false),
    };
    if options.input.is_none() && options.output.is_none() {
        return Err(
            "expected a capture to read (pcap:FILE or in=FILE) or to write (out=FILE)".to_owned()
        );
    }
    if options.input.is_some() && options.input == options.output {
        return Err("in and out are the same file".to_owned());
    }
    Ok(PortKind::Pcap(options))
}

fn memory(given: &mut Given<'_>) -> Parsed<PortKind> {
    if let Some(argument) = given.argument {
        let shown = argument.escape_debug();
        return Err(format!("`{shown}`, expected option=value, such as flows=1000"));
    }
    let usual = MemoryOptions::default();
    let sizes = MemoryOptions::SIZE_MIN..=MemoryOptions::SIZE_MAX;
    let flows = given.number("flows", 0..=MemoryOptions::FLOWS_MAX)?;
    let file = given.path("file")?;
    if flows.is_some() && file.is_some() {
        return Err("flows and file exclude each other".to_owned());
    }
    Ok(PortKind::Memory(MemoryOptions {
        flows: flows.unwrap_or(usual.flows),
        size: given.number("size", sizes)?.unwrap_or(usual.size),
        file,
        limit: given.number("limit", 0..=u64::MAX)?,
        keep: given.number("keep", 0..=MemoryOptions::KEEP_MAX)?.unwrap_or(usual.keep),
    }))
}

fn faults(given: &mut Given<'_>) -> Parsed<Option<FaultOptions>> {
    let before = given.options.len();
    let directions = [("in", FaultOn::In), ("out", FaultOn::Out), ("both", FaultOn::Both)];
    let mut probability = |name| given.number(name, 0.0..=1.0).map(Option::unwrap_or_default);
    let usual = FaultOptions::default();
    let faults = FaultOptions {
        loss: probability("loss")?,
        corrupt: probability("corrupt")?,
        reorder: probability("reorder")?,
        duplicate: probability("duplicate")?,
        seed: given.number("fault-seed", 0..=u64::MAX)?.unwrap_or(usual.seed),
        on: given.one_of("fault-on", &directions)?.unwrap_or(usual.on),
    };
    let asked = given.options.len() < before;
    Ok((asked && faults != usual).then_some(faults))
}

impl<'a> Given<'a> {
    fn new(rest: &'a str) -> Parsed<Given<'a>> {
        let mut given = Given { argument: None, options: Vec::new() };
        for (i, piece) in rest.split(',').enumerate() {
            match piece.split_once('=') {
                Some((name, _)) if given.options.iter().any(|(other, _)| *other == name) => {
                    return Err(format!("option `{}` is given twice", name.escape_debug()));
                }
                Some((name, "")) => {
                    return Err(format!("option `{}` has no value", name.escape_debug()));
                }
                Some(pair) => given.options.push(pair),
                None if i == 0 => given.argument = Some(piece).filter(|piece| !piece.is_empty()),
                None => {
                    let shown = piece.escape_debug();
                    return Err(format!("`{shown}`, expected option=value"));
                }
            }
        }
        Ok(given)
    }

    fn take(&mut self, name: &str) -> Option<&'a str> {
        let at = self.options.iter().position(|(other, _)| *other == name)?;
        Some(self.options.remove(at).1)
    }

    fn interface(&mut self) -> Parsed<String> {
        let Some(name) = self.argument.take() else {
            return Err("expected the name of an interface after the colon".to_owned());
        };
        // The kernel's rules for names.
        let fits = name.len() <= 15
            && name.chars().all(|c| c.is_ascii_graphic() && c != '/' && c != ':' && c != '%')
            && !matches!(name, "." | "..");
        if fits {
            Ok(name.to_owned())
        } else {
            let shown = name.escape_debug();
            Err(format!(
                "`{shown}`, expected an interface name of at most 15 characters, without / : % and blanks"
            ))
        }
    }

    fn path(&mut self, name: &str) -> Parsed<Option<PathBuf>> {
        Ok(self.take(name).map(PathBuf::from))
    }

    fn number<T: FromStr + PartialOrd + Display>(
        &mut self,
        name: &str,
        bounds: RangeInclusive<T>,
    ) -> Parsed<Option<T>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) if bounds.contains(&number) => Ok(Some(number)),
            _ => {
                let (shown, least, most) = (text.escape_debug(), bounds.start(), bounds.end());
                Err(format!("{name}={shown}, expected a number from {least} to {most}"))
            }
        }
    }

    fn one_of<T: Copy>(&mut self, name: &str, known: &[(&str, T)]) -> Parsed<Option<T>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        match known.iter().find(|(word, _)| *word == text) {
            Some((_, value)) => Ok(Some(*value)),
            None => {
                let words: Vec<_> = known.iter().map(|(word, _)| *word).collect();
                let shown = text.escape_debug();
                Err(format!("{name}={shown}, expected one of {}", words.join(", ")))
            }
        }
    }

    fn yes_no(&mut self, name: &str) -> Parsed<Option<bool>> {
        let known = [("yes", true), ("no", false), ("true", true), ("false", false)];
        self.one_of(name, &[&known[..], &[("on", true), ("off", false)]].concat())
    }
}

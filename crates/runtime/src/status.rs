//! The status of a running engine: for status documents, metrics and tests.
//!
//! Joins the tables of the runtime, the engine and its control side. All numbers but gauges only
//! grow; a rate is the difference of two documents over the difference of their `uptime_ms`.

use crate::control::{Control, Handle};
use crate::engine::Engine;
use crate::totals::{DropCounts, PortTotals, WorkerTotals};
use overbank_declare::counters::{Counters, Exposition, Gauge};
use overbank_reasons::Reasons;
use serde::Serialize;
use std::ops::Deref;

/// Number of the account for frames of the control side: `OFPP_CONTROLLER`.
pub const CONTROLLERS: u32 = 0xffff_fffd;
/// Its name.
pub const CONTROLLERS_NAME: &str = "controllers";

/// The status of a control side.
pub trait ControlStatus: Serialize + Send + 'static {
    /// Adds its numbers to the metrics.
    fn expose(&self, to: &mut Exposition);
}

/// Status of a port.
#[derive(Clone, Debug, Serialize)]
#[serde(bound(serialize = ""))]
pub struct PortStatus<R: Reasons + 'static> {
    /// Number in configuration and OpenFlow.
    pub number: u32,
    /// Interface, or the kind of a port without one.
    pub name: String,
    /// Modes, for display.
    pub detail: String,
    /// Whether frames can pass.
    pub link_up: bool,
    /// Counts by fate of the frames.
    #[serde(flatten)]
    pub totals: PortTotals,
    /// Dropped frames by reason.
    #[serde(flatten)]
    pub dropped: DropCounts<R>,
    /// Whether both accounts close.
    pub closes: bool,
}

impl<R: Reasons> Deref for PortStatus<R> {
    type Target = PortTotals;

    fn deref(&self) -> &PortTotals {
        &self.totals
    }
}

/// Status of one worker, or of all together.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerStatus<T> {
    /// The worker's counts.
    #[serde(flatten)]
    pub worker: WorkerTotals,
    /// The engine's counts.
    #[serde(flatten)]
    pub engine: T,
    /// Share of the engine in the measured time with packets, without receiving, copying out and
    /// system calls. Absent if nothing was measured.
    pub datapath_share: Option<f64>,
    /// Cycles a packet in the engine, receiving, copying out, flushing.
    pub cycles_per_packet: Option<[f64; 4]>,
}

impl<T> Deref for WorkerStatus<T> {
    type Target = WorkerTotals;

    fn deref(&self) -> &WorkerTotals {
        &self.worker
    }
}

impl<T> WorkerStatus<T> {
    fn new(worker: WorkerTotals, engine: T) -> WorkerStatus<T> {
        let t = &worker;
        let parts = [t.cycles_datapath, t.cycles_receive, t.cycles_send, t.cycles_flush];
        let sum: u64 = parts.iter().sum();
        let measured = t.sampled_packets > 0 && sum > 0;
        WorkerStatus {
            datapath_share: measured.then(|| t.cycles_datapath as f64 / sum as f64),
            cycles_per_packet: measured
                .then(|| parts.map(|cycles| cycles as f64 / t.sampled_packets as f64)),
            worker,
            engine,
        }
    }
}

/// The document of an engine and its control side, with the engine's counts (`T`), its drop reasons
/// (`R`) and the control side's status (`S`).
#[derive(Clone, Debug, Serialize)]
#[serde(bound(serialize = "T: Serialize, S: Serialize"))]
pub struct Status<T, R: Reasons + 'static, S> {
    pub uptime_ms: u64,
    /// Ports; the last, with the number [`CONTROLLERS`], counts frames of the control side.
    pub ports: Vec<PortStatus<R>>,
    pub workers: Vec<WorkerStatus<T>>,
    /// All workers together.
    pub total: WorkerStatus<T>,
    /// Published version, and the control side's status.
    pub control: PublishedStatus<S>,
    /// Whether all accounts of all ports close.
    pub closes: bool,
}

/// The status of a control side of this kind.
pub type StatusOf<C> = Status<
    <<C as Control>::Engine as Engine>::Totals,
    <<C as Control>::Engine as Engine>::Drop,
    <C as Control>::Status,
>;

const UPTIME: Gauge =
    Gauge { name: "overbank_uptime_seconds", help: "Time since the start", labels: &[] };
const PORT_UP: Gauge =
    Gauge { name: "overbank_port_up", help: "Whether frames can pass", labels: &["port", "name"] };
const DATAPATH_SHARE: Gauge = Gauge {
    name: "overbank_worker_datapath_share",
    help: "Share of the datapath in the measured time of packet processing",
    labels: &["worker"],
};

/// Metrics of every engine that are computed and not counted.
pub const GAUGES: [Gauge; 3] = [UPTIME, PORT_UP, DATAPATH_SHARE];

overbank_declare::counters! {
    /// Counts of publications.
    pub struct PublisherTotals: "overbank_" {
        version: gauge version "Version of the rules published last" as "rules_version";
        snapshots_published: counter snapshots "Snapshots published" in status;
    }
}

/// Published version, and the control side's status.
#[derive(Clone, Debug, Serialize)]
pub struct PublishedStatus<S> {
    /// Publications.
    #[serde(flatten)]
    pub publisher: PublisherTotals,
    /// Control side's status.
    #[serde(flatten)]
    pub own: S,
}

impl<S> Deref for PublishedStatus<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.own
    }
}

impl<T: Counters, R: Reasons, S: ControlStatus> Status<T, R, S> {
    /// Reads the current status.
    pub fn new<C, E>(handle: &Handle<C>) -> Status<T, R, S>
    where
        C: Control<Engine = E, Status = S>,
        E: Engine<Totals = T, Drop = R>,
    {
        let control = handle.lock();
        let publisher = control.publisher();
        let readings = publisher.readings();
        let mut sums: Vec<(PortTotals, DropCounts<R>)> = Vec::new();
        sums.resize_with(publisher.ports().len() + 1, Default::default);
        for reading in &readings {
            for ((totals, dropped), port) in sums.iter_mut().zip(&reading.ports) {
                totals.add(&port.totals);
                dropped.add(&port.dropped);
            }
        }
        let descs = publisher
            .ports()
            .iter()
            .map(|port| (port.number, port.name.clone(), port.detail.clone(), port.link_up));
        let own = (CONTROLLERS, CONTROLLERS_NAME.to_owned(), String::new(), control.is_attended());
        let ports = descs.chain([own]).zip(sums).map(
            |((number, name, detail, link_up), (totals, dropped))| PortStatus {
                number,
                name,
                detail,
                link_up,
                closes: totals.closes(&dropped),
                totals,
                dropped,
            },
        );
        let ports: Vec<_> = ports.collect();
        let own = control.status();
        let publisher = publisher.totals();
        let uptime_ms = handle.now_ms();
        drop(control);
        let total = WorkerStatus::new(
            WorkerTotals::sum(readings.iter().map(|reading| &reading.worker)),
            T::sum(readings.iter().map(|reading| &reading.engine)),
        );
        Status {
            uptime_ms,
            closes: ports.iter().all(|port| port.closes),
            ports,
            workers: readings.into_iter().map(|r| WorkerStatus::new(r.worker, r.engine)).collect(),
            total,
            control: PublishedStatus { publisher, own },
        }
    }

    /// Adds every number to the metrics.
    pub fn expose(&self, to: &mut Exposition) {
        let up = self.uptime_ms as f64 / 1e3;
        to.gauge(&UPTIME, &[], up);
        to.announce::<PortTotals>();
        to.announce::<DropCounts<R>>();
        for port in &self.ports {
            let number = port.number.to_string();
            let labels = [("port", number.as_str()), ("name", port.name.as_str())];
            to.add(&labels, &port.totals);
            to.add(&labels, &port.dropped);
            let up = f64::from(u8::from(port.link_up));
            to.gauge(&PORT_UP, &[&number, &port.name], up);
        }
        for (index, worker) in self.workers.iter().enumerate() {
            let number = index.to_string();
            let labels = [("worker", number.as_str())];
            to.add(&labels, &worker.engine);
            to.add(&labels, &worker.worker);
            to.gauge(&DATAPATH_SHARE, &[&number], worker.datapath_share.unwrap_or(0.0));
        }
        to.add(&[], &self.control.publisher);
        self.control.own.expose(to);
    }
}

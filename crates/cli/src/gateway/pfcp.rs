//! N4 of the gateway: datagrams of PFCP to its sessions.

use crate::live::{RunError, seed};
use overbank_declare::counters::Counters;
use overbank_gateway::GatewayControl;
use overbank_gateway::engine::Order;
use overbank_gateway::prefix::Prefixes;
use overbank_handover::publication::Publication;
use overbank_n4::{N4Totals, Out, Settings, Speaker};
use overbank_runtime::Handle;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// Time between two looks at reports, and longest wait for a datagram.
const WAIT: Duration = Duration::from_millis(50);
/// Seconds from 1900, when NTP begins, to 1970.
const NTP_SHIFT: u64 = 2_208_988_800;

/// Counts of a speaker, for readers of other threads.
#[derive(Clone)]
pub struct Counts(Arc<Publication>);

impl Counts {
    pub fn new() -> Counts {
        Counts(Arc::new(Publication::new(N4Totals::WORDS)))
    }

    pub fn read(&self) -> N4Totals {
        N4Totals::from_words(&self.0.read())
    }
}

/// Serves until `stop`, and publishes counts.
///
/// # Errors
/// The address cannot be bound.
pub fn serve(
    (address, peers): (SocketAddr, Prefixes),
    handle: &Handle<GatewayControl>,
    counts: Option<&Counts>,
    stop: &watch::Receiver<bool>,
) -> Result<(), RunError> {
    let bind = |error| RunError::Pfcp { address, error };
    let socket = UdpSocket::bind(address).map_err(bind)?;
    socket.set_read_timeout(Some(WAIT)).map_err(bind)?;
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let started_s = (since_1970.as_secs() + NTP_SHIFT) as u32;
    let mut speaker = Speaker::new(Settings { node: address.ip(), started_s, peers, seed: seed() });
    tracing::info!(%address, "PFCP: waiting for associations");
    let (mut buffer, mut out) = (vec![0; 65_536], Vec::new());
    // An error means that the sender is gone: stop then, too.
    while !*stop.borrow() && stop.has_changed().is_ok() {
        let end = Instant::now() + WAIT;
        while Instant::now() < end {
            let Ok((len, from)) = socket.recv_from(&mut buffer) else { break };
            let mut control = handle.lock();
            let (sessions, now_ms) = control.sessions_mut();
            speaker.receive(&buffer[..len], from, now_ms, sessions, &mut out);
            drop(control);
            carry_out(&mut out, &socket, handle);
        }
        let mut control = handle.lock();
        let now_ms = handle.now_ms();
        while let Some((peer, teid)) = control.lost_tunnel() {
            speaker.error_indication(peer, teid, now_ms, &mut out);
        }
        let (sessions, now_ms) = control.sessions_mut();
        speaker.tick(now_ms, sessions, &mut out);
        drop(control);
        if let Some(counts) = counts {
            counts.0.publish(speaker.totals().words());
        }
        carry_out(&mut out, &socket, handle);
    }
    Ok(())
}

fn carry_out(out: &mut Vec<Out>, socket: &UdpSocket, handle: &Handle<GatewayControl>) {
    for out in out.drain(..) {
        match out {
            Out::Send { to, bytes } => {
                if let Err(error) = socket.send_to(&bytes, to) {
                    tracing::warn!(%to, %error, "PFCP: a datagram was not sent");
                }
            }
            Out::EndMarker { n3, peer, teid } => {
                if handle.order(Order::EndMarker { n3, peer, teid }).is_err() {
                    tracing::warn!(%peer, teid, "an End Marker was not sent: too many orders");
                }
            }
        }
    }
}

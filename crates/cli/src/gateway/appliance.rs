//! The gateway as a service.

#[cfg(feature = "cluster")]
use super::cluster;
#[cfg(feature = "pfcp")]
use super::pfcp;
use super::{Args, Config};
use crate::live::document::{Extra, Served};
use crate::live::{Appliance, RunError, until_stopped};
use crate::switch::status::GATEWAY_SCHEMA;
use overbank_declare::settings::{Location, Problem, Problems};
use overbank_gateway::teid::Secret;
use overbank_gateway::{GatewayControl, Setup, file, http};
use overbank_ports::PortSpec;
use overbank_runtime::Handle;
use overbank_runtime::settings::{PortSetting, WorkerSettings};
use overbank_service::connections::ConnectionLimit;
use serde::Serialize;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::watch;

/// What the documents of the gateway have beside its engine.
#[derive(Clone, Copy)]
pub struct GatewayExtra;

#[derive(Serialize)]
pub struct Head {
    schema: &'static str,
    mode: &'static str,
}

impl Extra for GatewayExtra {
    type Head = Head;

    fn head(&self) -> Head {
        Head { schema: GATEWAY_SCHEMA, mode: "gateway" }
    }
}

/// What a reload cannot change.
#[derive(PartialEq)]
struct Fixed {
    /// With what AF_XDP ports take: pools of such a port change with a restart.
    ports: Vec<(u32, PortSpec)>,
    n3: Vec<std::net::IpAddr>,
    teid_secret: Option<Secret>,
    workers: usize,
    max_sessions: usize,
}

impl Fixed {
    fn of(ports: &[PortSetting], setup: &Setup) -> Fixed {
        Fixed {
            ports: ports.iter().map(|port| (port.number, port.spec.clone())).collect(),
            n3: setup.n3.to_vec(),
            teid_secret: setup.teid_secret,
            workers: setup.run.workers,
            max_sessions: setup.max_sessions,
        }
    }
}

/// Reads settings and sessions again; errors change nothing.
fn reload(args: &Args, fixed: &Fixed, handle: &Handle<GatewayControl>) -> Result<(), Problems> {
    let config = Config::new(args.source(), &WorkerSettings::available_cores())?;
    if *fixed != Fixed::of(&config.ports, &config.setup) {
        let what = "ports, N3 addresses, workers, max-sessions, teid-secret and the pools of AF_XDP \
                    ports change with a restart alone";
        let what = what.to_owned();
        return Err(Problems(vec![Problem { location: Location::InText, what }]));
    }
    let Config { setup, sessions, .. } = config;
    let list = sessions.as_ref().map(|_| &setup.sessions[..]);
    let done = handle.lock().reload(setup.tunable, list).map_err(|refusals| {
        let name = sessions.map_or("sessions".to_owned(), |path| path.display().to_string());
        file::problems(&name, &refusals)
    })?;
    tracing::info!(
        added = done.added,
        changed = done.changed,
        removed = done.removed,
        kept = done.kept,
        "settings and sessions read again"
    );
    Ok(())
}

impl Appliance for GatewayControl {
    type Config = Config;
    type Extra = GatewayExtra;

    fn announce(config: &Config, _: &GatewayExtra, cores: &[Option<usize>]) {
        tracing::info!(
            mode = "gateway",
            sessions = config.setup.sessions.len(),
            workers = config.setup.run.workers,
            ?cores,
            "forwarding"
        );
    }

    fn unready(handle: &Handle<Self>) -> Option<String> {
        let control = handle.lock();
        control.cluster()?.unready(control.now_ms()).map(str::to_owned)
    }

    fn reload(config: &Config, handle: &Handle<Self>) -> Option<impl FnOnce() + Send + 'static> {
        let (args, fixed) = (config.args.clone()?, Fixed::of(&config.ports, &config.setup));
        let handle = handle.clone();
        Some(move || {
            if let Err(problems) = reload(&args, &fixed, &handle) {
                for problem in &problems.0 {
                    tracing::error!(%problem, "not reloaded");
                }
                tracing::error!(errors = problems.0.len(), "settings and sessions unchanged");
            }
        })
    }

    fn serve(
        config: &Config,
        served: Served<Self>,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = Result<(), RunError>> + Send + 'static {
        #[cfg(feature = "pfcp")]
        let n4 = config.pfcp.clone().map(|n4| (n4, served.handle.clone(), stop.clone()));
        #[cfg(feature = "cluster")]
        let node = cluster::start(config, &served.handle);
        let control = config.socket.as_ref().map_or(Ok(()), |socket| {
            let handle = served.handle.clone();
            let router = http::router(handle, Arc::new(served), stop.clone());
            socket.serve(router, ConnectionLimit::new(config.control.1), stop.clone())
        });
        async move {
            control?;
            #[cfg(feature = "cluster")]
            if let Some(node) = node {
                return cluster::run(node, stop).await;
            }
            #[cfg(feature = "pfcp")]
            if let Some((n4, handle, stop)) = n4 {
                let served = tokio::task::spawn_blocking(move || pfcp::serve(n4, &handle, &stop));
                served.await.map_err(|_| RunError::Broken)??;
            }
            until_stopped(stop).await
        }
    }
}

//! A process of this program that works on orders: a line in, a line of JSON out.
//!
//! A process without an order sleeps on its input, so several can share a core and take turns.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The side that gives orders; the process ends when this is dropped.
pub struct Process {
    name: &'static str,
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Process {
    /// Starts this program with these arguments. `name` is for messages.
    pub fn start(
        name: &'static str,
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments);
        // Overbank's and DPDK's tables lie on huge pages: memory of malloc may do so too.
        command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = child.stdin.take().context("a pipe")?;
        let answers = BufReader::new(child.stdout.take().context("a pipe")?);
        Ok(Process { name, child, orders, answers })
    }

    /// Returns the name for messages.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Sends an order and returns its answer.
    pub fn order<A: DeserializeOwned>(&mut self, order: &str, count: u64) -> Result<A> {
        let name = self.name;
        let sent = writeln!(self.orders, "{order} {count}").and_then(|()| self.orders.flush());
        let mut line = String::new();
        if sent.is_err() || self.answers.read_line(&mut line)? == 0 {
            bail!("{name} ended: {}", self.child.wait()?);
        }
        serde_json::from_str(&line).with_context(|| format!("{name} said: {line}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may still be working when another one failed; it may also have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves orders: carries out each order of the input and writes the answer, until the input ends.
pub fn serve<A: Serialize>(mut work: impl FnMut(&str, u64) -> Result<A>) -> Result<()> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (order, count) = line.split_once(' ').context("an order and a number")?;
        let answer = work(order, count.parse()?)?;
        let mut out = std::io::stdout().lock();
        serde_json::to_writer(&mut out, &answer)?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
    Ok(())
}

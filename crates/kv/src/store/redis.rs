//! Redis as a store: GET, SET and DEL, a batch at a time as one pipeline over one connection.
//!
//! A new connection has a name, `overbank-kv:` and that of the agent. Before it asks for anything,
//! it has Redis end all connections of that name (CLIENT LIST, CLIENT KILL). What Redis has
//! received by them and not done yet, it does not do any more. So a write of unknown outcome has
//! been done by then or never is, and no write of an agent's earlier run comes late. The user needs
//! `GET`, `SET`, `DEL` and `CLIENT`.
//!
//! Values longer than a message's, of other programs, are refused. An expiry that another program
//! sets is not noticed by a device that caches the key.

use super::Backend;
use crate::key::redis_name;
use overbank_netcache::agent::{Answer, Ask};
use overbank_wire::netcache::{Key, VALUE_MAX};
use redis::{Client, Connection, ErrorKind, IntoConnectionInfo, RedisError, Value, cmd};
use std::time::Duration;

pub struct Redis {
    client: Client,
    /// Name of its connections.
    name: String,
    timeout: Duration,
    connection: Option<Connection>,
}

impl Redis {
    pub fn new(url: &str, name: &str, timeout: Duration) -> Result<Redis, String> {
        let wrong = |error: RedisError| {
            format!("{error}; must be redis://[USER:PASSWORD@]HOST[:PORT][/DB]")
        };
        let client = url.into_connection_info().and_then(Client::open).map_err(wrong)?;
        // Redis takes names of printable characters without blanks.
        let graphic = |c: char| if c.is_ascii_graphic() { c } else { '_' };
        let name = format!("overbank-kv:{name}").chars().map(graphic).collect();
        Ok(Redis { client, name, timeout, connection: None })
    }

    fn open(&self) -> Result<Connection, RedisError> {
        let mut connection = self.client.get_connection_with_timeout(self.timeout)?;
        connection.set_read_timeout(Some(self.timeout))?;
        connection.set_write_timeout(Some(self.timeout))?;
        let list: String = cmd("CLIENT").arg("LIST").query(&mut connection)?;
        for id in named(&list, &self.name) {
            // 0: it has ended since.
            let _ended: u64 = cmd("CLIENT").arg("KILL").arg("ID").arg(id).query(&mut connection)?;
        }
        let _ok: String = cmd("CLIENT").arg("SETNAME").arg(&self.name).query(&mut connection)?;
        Ok(connection)
    }
}

/// Returns the numbers of the connections in a CLIENT LIST that have this name.
fn named<'a>(list: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let field = |line: &'a str, field: &str| {
        line.split(' ').find_map(|word| word.strip_prefix(field)?.strip_prefix('='))
    };
    let of_name = list.lines().filter(move |line| field(line, "name") == Some(name));
    of_name.filter_map(move |line| field(line, "id"))
}

fn answer(ask: &Ask, value: Value) -> Result<Answer, String> {
    match (ask, value) {
        // Of the type of another command, no memory, read-only.
        (_, Value::ServerError(_)) => Ok(Answer::Failed),
        (Ask::Read, Value::Nil) => Ok(Answer::Read(None)),
        (Ask::Read, Value::BulkString(value)) if value.len() <= VALUE_MAX => {
            Ok(Answer::Read(Some(value.into())))
        }
        (Ask::Read, Value::BulkString(_)) => Ok(Answer::Failed),
        (Ask::Write(Some(_)), Value::Okay) | (Ask::Write(None), Value::Int(_)) => {
            Ok(Answer::Written)
        }
        (_, value) => Err(format!("it answers {value:?}")),
    }
}

impl Backend for Redis {
    fn connect(&mut self) -> Result<(), String> {
        self.connection = None;
        self.connection = Some(self.open().map_err(|error| error.to_string())?);
        Ok(())
    }

    fn batch(&mut self, batch: &[(Key, Ask)], answers: &mut Vec<Answer>) -> Result<(), String> {
        let Some(connection) = &mut self.connection else { return Err("not connected".to_owned()) };
        let mut pipeline = redis::pipe();
        // An error that one command gets is its answer.
        pipeline.ignore_errors();
        for (key, ask) in batch {
            let name = redis_name(*key);
            match ask {
                Ask::Read => pipeline.cmd("GET").arg(name),
                Ask::Write(Some(value)) => pipeline.cmd("SET").arg(name).arg(&value[..]),
                Ask::Write(None) => pipeline.cmd("DEL").arg(name),
            };
        }
        let values: Result<Vec<Value>, RedisError> = pipeline.query(connection);
        let read = values.map_err(|error| match error.kind() {
            ErrorKind::Io => format!("no answer: {error}"),
            _ => error.to_string(),
        });
        let read = read.and_then(|values| {
            for ((_, ask), value) in batch.iter().zip(values) {
                answers.push(answer(ask, value)?);
            }
            Ok(())
        });
        if read.is_err() {
            self.connection = None;
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_found_by_their_whole_name() {
        let list = "id=3 addr=127.0.0.1:1 name=overbank-kv:a age=1\n\
                    id=4 addr=127.0.0.1:2 name=overbank-kv:ab age=1\n\
                    id=5 addr=127.0.0.1:3 name= age=1\nid=6 name=overbank-kv:a\n\ngarbage\n";
        assert_eq!(named(list, "overbank-kv:a").collect::<Vec<_>>(), ["3", "6"]);
        assert_eq!(named("", "overbank-kv:a").count(), 0);
    }
}

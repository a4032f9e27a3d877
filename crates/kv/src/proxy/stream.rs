//! A connection: plain TCP, or TLS over it.
//!
//! ```text
//!   write ─▶ records, up to LIMIT ─▶ socket       rustls keeps records that the socket does not
//!   read ◀── plaintext ◀── records ◀─ socket      take, and what of a record has not been read
//! ```
//!
//! # Guarantees
//! - Readiness is that of the socket's edges: a read that is not `WouldBlock` may leave plaintext,
//!   a write that takes all may leave records ([`Stream::holds`]), which [`Stream::write`] sends.
//! - Bounded: [`LIMIT`] out, a few records in, [`HANDSHAKE`] for the handshake, [`IDLE`] bytes
//!   without content.
//! - An end without close_notify is an end: requests and replies say how long they are.

use super::buffer::Out;
use super::tls::Tls;
use super::totals::Closed;
use mio::net::TcpStream;
use rustls::{ClientConnection, Connection, ServerConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

/// Longest handshake.
pub const HANDSHAKE: Duration = Duration::from_secs(10);
/// Bytes of records that wait for the socket.
const LIMIT: usize = 64 << 10;
/// Bytes of records without content that are read at a time.
const IDLE: usize = 256 << 10;

/// Why TLS ended a connection.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("TLS: the connection ended within the handshake")]
    Ended,
    #[error("TLS: no handshake within {HANDSHAKE:?}")]
    Late,
    #[error("TLS: records without content")]
    Idle,
}

impl From<Failed> for io::Error {
    fn from(failed: Failed) -> io::Error {
        io::Error::other(failed)
    }
}

impl Failed {
    /// Returns the failure within an error, if TLS is the reason.
    pub fn of(error: &io::Error) -> Option<&Failed> {
        error.get_ref()?.downcast_ref()
    }

    /// Returns which setting may have to change, for a connection to the server.
    pub fn remedy(&self) -> &'static str {
        use rustls::{AlertDescription as Alert, CertificateError as Wrong, Error};
        match self {
            // A bad signature is that of another authority of the same name.
            Failed::Tls(Error::InvalidCertificate(Wrong::UnknownIssuer | Wrong::BadSignature)) => {
                "upstream-ca must have the authority of its certificate"
            }
            Failed::Tls(Error::InvalidCertificate(
                Wrong::NotValidForName | Wrong::NotValidForNameContext { .. },
            )) => "upstream-name must be a name of its certificate",
            Failed::Tls(Error::InvalidCertificate(_)) => "its certificate must be right",
            Failed::Tls(Error::AlertReceived(
                Alert::CertificateRequired
                | Alert::HandshakeFailure
                | Alert::UnknownCA
                | Alert::BadCertificate
                | Alert::DecryptError
                | Alert::CertificateUnknown,
            )) => "upstream-cert and upstream-key must be a certificate that it trusts",
            _ => "upstream must be redis:// if it speaks no TLS",
        }
    }
}

/// Returns why a connection with this error is closed, if it is not for another reason.
pub fn reason(error: &io::Error, other: Closed) -> Closed {
    match Failed::of(error) {
        Some(failed) => {
            tracing::debug!(%failed, "connection closed");
            Closed::Tls
        }
        None => other,
    }
}

/// See the module.
pub enum Stream {
    Plain(TcpStream),
    Tls(Box<Secure>),
}

/// TLS over a socket.
pub struct Secure {
    socket: TcpStream,
    tls: Connection,
    since: Instant,
}

impl Secure {
    fn over(
        socket: TcpStream,
        tls: Result<impl Into<Connection>, rustls::Error>,
    ) -> io::Result<Stream> {
        let mut tls: Connection = tls.map_err(Failed::Tls)?.into();
        tls.set_buffer_limit(Some(LIMIT));
        let since = Instant::now();
        Ok(Stream::Tls(Box::new(Secure { socket, tls, since })))
    }

    /// Writes records until the socket takes no more.
    fn send(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads from the socket once; returns how many bytes.
    fn take(&mut self) -> io::Result<usize> {
        let count = self.tls.read_tls(&mut self.socket)?;
        if let Err(error) = self.tls.process_new_packets() {
            // The other side gets the reason, if it can be sent.
            let _ = self.send();
            return Err(Failed::Tls(error).into());
        }
        match count == 0 && self.tls.is_handshaking() {
            true => Err(Failed::Ended.into()),
            false => Ok(count),
        }
    }

    /// Returns whether the handshake is done, after what of it can be done now.
    fn shake(&mut self) -> io::Result<bool> {
        loop {
            self.send()?;
            if !self.tls.is_handshaking() {
                return Ok(true);
            }
            match self.take() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }
}

impl Read for Secure {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut idle = 0;
        while idle <= IDLE {
            match self.tls.reader().read(bytes) {
                Ok(0) if self.tls.is_handshaking() => return Err(Failed::Ended.into()),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) if error.kind() == ErrorKind::WouldBlock => idle += self.take()?,
                result => return result,
            }
        }
        Err(Failed::Idle.into())
    }
}

impl Write for Secure {
    /// Takes bytes if the socket has taken earlier ones: `WouldBlock` is the socket's.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send()?;
        // What it would keep until then has no bound of ours.
        if self.tls.is_handshaking() {
            return Err(ErrorKind::WouldBlock.into());
        }
        match self.tls.writer().write(bytes)? {
            0 => Err(ErrorKind::WouldBlock.into()),
            count => {
                self.send()?;
                Ok(count)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

impl Stream {
    /// Returns the connection of a client that has been accepted.
    ///
    /// # Errors
    /// TLS cannot begin.
    pub fn of_client(socket: TcpStream, tls: &Tls) -> io::Result<Stream> {
        match &tls.clients {
            None => Ok(Stream::Plain(socket)),
            Some(config) => Secure::over(socket, ServerConnection::new(config.clone())),
        }
    }

    /// Returns a connection to the server, which need not stand yet.
    ///
    /// # Errors
    /// TLS cannot begin.
    pub fn of_server(socket: TcpStream, tls: &Tls) -> io::Result<Stream> {
        match &tls.upstream {
            None => Ok(Stream::Plain(socket)),
            Some((config, name)) => {
                Secure::over(socket, ClientConnection::new(config.clone(), name.clone()))
            }
        }
    }

    /// Returns the socket, to be registered.
    pub fn socket(&mut self) -> &mut TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(secure) => &mut secure.socket,
        }
    }

    /// Returns whether a short read has emptied the socket.
    pub fn is_plain(&self) -> bool {
        matches!(self, Stream::Plain(_))
    }

    /// Returns whether it has bytes that the socket has not taken.
    pub fn holds(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            Stream::Tls(secure) => secure.tls.wants_write(),
        }
    }

    /// Fails if the handshake takes too long.
    ///
    /// # Errors
    /// As said.
    pub fn in_time(&self) -> Result<(), Failed> {
        match self {
            Stream::Tls(secure)
                if secure.tls.is_handshaking() && secure.since.elapsed() > HANDSHAKE =>
            {
                Err(Failed::Late)
            }
            _ => Ok(()),
        }
    }

    /// Returns whether a connection to the server stands, with TLS.
    ///
    /// # Errors
    /// It never will.
    pub fn stands(&mut self) -> io::Result<bool> {
        let socket = self.socket();
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        if socket.peer_addr().is_err() {
            return Ok(false);
        }
        match self {
            Stream::Plain(_) => Ok(true),
            Stream::Tls(secure) => secure.shake(),
        }
    }

    /// Writes what it holds, and what it takes of `out`; returns the number of bytes of `out`.
    ///
    /// # Errors
    /// It fails, or takes nothing more for ever.
    pub fn write(&mut self, out: &mut Out) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => out.write(socket),
            Stream::Tls(secure) => {
                let count = out.write(&mut **secure)?;
                secure.send()?;
                Ok(count)
            }
        }
    }

    /// Tells the other side that nothing more comes, behind what it holds.
    ///
    /// # Errors
    /// It is closed already.
    pub fn end(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.shutdown(Shutdown::Write),
            Stream::Tls(secure) => {
                secure.tls.send_close_notify();
                secure.send()
            }
        }
    }

    /// Says that it ends, if the socket takes that; then it is to be dropped.
    pub fn close(&mut self) {
        if !self.is_plain() {
            // The end of the socket says it too.
            let _ = self.end();
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(bytes),
            Stream::Tls(secure) => secure.read(bytes),
        }
    }
}

//! Passwords and certificates between a node and the services of its cluster.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};

/// What etcd asks a client for.
#[derive(Clone, Default)]
pub struct EtcdAccess {
    /// User and password.
    pub user: Option<(String, String)>,
    /// Certificates (PEM) that sign those of etcd; `None`: those that the system trusts.
    pub ca: Option<Vec<u8>>,
    /// The node's certificate and key (PEM).
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for EtcdAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EtcdAccess")
    }
}

impl EtcdAccess {
    /// Connects to etcd.
    ///
    /// # Errors
    /// The certificates or URLs cannot be used, or etcd refuses the user.
    pub async fn connect(&self, urls: &[String]) -> Result<Client, etcd_client::Error> {
        Client::connect(urls, Some(self.options(urls))).await
    }

    fn options(&self, urls: &[String]) -> ConnectOptions {
        let mut connect = ConnectOptions::new()
            .with_connect_timeout(Duration::from_secs(1))
            .with_keep_alive(Duration::from_secs(1), Duration::from_secs(1))
            .with_keep_alive_while_idle(true)
            .with_require_leader(true);
        if let Some((user, password)) = &self.user {
            // etcd forgets its tokens after minutes, and when it starts.
            connect = connect.with_user(user, password).with_auto_token_refresh(true);
        }
        if urls.iter().any(|url| url.starts_with("https://")) {
            let mut tls = match &self.ca {
                Some(ca) => TlsOptions::new().ca_certificate(Certificate::from_pem(ca)),
                None => TlsOptions::new().with_native_roots(),
            };
            if let Some((certificate, key)) = &self.identity {
                tls = tls.identity(Identity::from_pem(certificate, key));
            }
            connect = connect.with_tls(tls);
        }
        connect
    }
}

/// What a NATS server asks a client for.
#[derive(Clone, Default)]
pub struct NatsAccess {
    /// User and password.
    pub user: Option<(String, String)>,
    /// A file with credentials.
    pub credentials: Option<PathBuf>,
    /// A file of certificates (PEM) that sign those of the servers; `None`: those that the system
    /// trusts.
    pub ca: Option<PathBuf>,
}

impl fmt::Debug for NatsAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NatsAccess")
    }
}

impl NatsAccess {
    /// Adds it to how to connect.
    pub(crate) async fn add_to(
        &self,
        mut connect: async_nats::ConnectOptions,
    ) -> io::Result<async_nats::ConnectOptions> {
        if let Some((user, password)) = self.user.clone() {
            connect = connect.user_and_password(user, password);
        }
        if let Some(path) = &self.credentials {
            connect = connect.credentials_file(path).await?;
        }
        if let Some(path) = &self.ca {
            connect = connect.add_root_certificates(path.clone());
        }
        Ok(connect)
    }
}

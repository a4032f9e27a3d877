//! Passwords, keys and certificates of a cluster's services: files, read before anything starts.

use overbank_declare::settings::{Check, Located};
use overbank_gateway::settings::{GatewaySettings, Url};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Longest file.
const FILE_MAX: u64 = 1 << 20;
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
const KEY: &str = "PRIVATE KEY-----";

/// What services ask a node for.
#[derive(Clone, Default)]
pub struct Access {
    files: [Option<PathBuf>; 5],
    pub nats_credentials: Option<PathBuf>,
    pub nats_ca: Option<PathBuf>,
    /// User and password of NATS.
    pub nats_user: Option<(String, String)>,
    /// User and password of etcd.
    pub user: Option<(String, String)>,
    /// Certificates that sign those of etcd (PEM).
    pub ca: Option<Vec<u8>>,
    /// The node's certificate and key (PEM).
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Access")
    }
}

impl Access {
    /// Returns where the files are; reports what does not fit together.
    pub fn of(check: &mut Check, gateway: &GatewaySettings) -> Access {
        let GatewaySettings { etcd_user, etcd_ca, etcd_cert, etcd_key, nats_user, .. } = gateway;
        for (name, other, pair) in [
            ("etcd-cert", "etcd-key", (etcd_cert, etcd_key)),
            ("etcd-key", "etcd-cert", (etcd_key, etcd_cert)),
        ] {
            if let ((Some(_), None), Some(location)) = (pair, check.given(name)) {
                check.problem(location, format!("certificate and key: give {other}, too"));
            }
        }
        let lists = [
            ("etcd", &gateway.etcd, ["http", "https"], &["etcd-ca", "etcd-cert"][..]),
            ("nats", &gateway.nats, ["nats", "tls"], &["nats-ca"][..]),
        ];
        for (name, urls, [plain, secured], files) in lists {
            check_urls(check, name, urls, [plain, secured]);
            let is_secured = |url: &Located<Url>| url.value.scheme() == secured;
            let given = files.iter().find_map(|name| Some((name, check.given(name)?)));
            if let Some((file, location)) = given
                && !urls.iter().all(is_secured)
            {
                let what = format!("{file} is for {secured}: every URL of {name} must have it");
                check.problem(location, what);
            }
        }
        Access {
            files: [etcd_user, etcd_ca, etcd_cert, etcd_key, nats_user].map(Clone::clone),
            nats_credentials: gateway.nats_credentials.clone(),
            nats_ca: gateway.nats_ca.clone(),
            ..Access::default()
        }
    }

    /// Reads the files.
    ///
    /// # Errors
    /// Returns what is wrong with one, and what would be right; never what it holds.
    pub fn read(&mut self) -> Result<(), String> {
        let [user, ca, cert, key, nats_user] = &self.files;
        self.user = user.as_deref().map(read_user).transpose()?;
        self.nats_user = nats_user.as_deref().map(read_user).transpose()?;
        let pem = |path: &Path, mark: &str, what: &str| {
            let text = read(path)?;
            let wrong = || format!("{}: must be {what} as PEM (\"{mark}\")", path.display());
            text.contains(mark).then(|| text.into_bytes()).ok_or_else(wrong)
        };
        let certificate = |path: &Path| pem(path, CERTIFICATE, "certificates");
        self.ca = ca.as_deref().map(certificate).transpose()?;
        if let (Some(cert), Some(key)) = (cert, key) {
            self.identity = Some((certificate(cert)?, pem(key, KEY, "a key")?));
        }
        self.nats_ca.as_deref().map(certificate).transpose()?;
        self.nats_credentials.as_deref().map(read).transpose()?;
        Ok(())
    }
}

fn check_urls(check: &mut Check, name: &str, urls: &[Located<Url>], known: [&str; 2]) {
    for Located { value: url, location } in urls {
        if !known.contains(&url.scheme()) {
            let [plain, secured] = known;
            let what = format!("{}: a URL of {name} begins with {plain}:// or {secured}://", url.0);
            check.problem(location.clone(), what);
        }
    }
}

fn read(path: &Path) -> Result<String, String> {
    let name = path.display();
    let mut text = String::new();
    let file = File::open(path).and_then(|file| file.take(FILE_MAX).read_to_string(&mut text));
    match file {
        Ok(_) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(format!("{name}: must be text"))
        }
        Err(error) => Err(format!("{name}: cannot read it: {error}")),
    }
}

fn read_user(path: &Path) -> Result<(String, String), String> {
    let text = read(path)?;
    let (user, rest) = text.split_once(':').unwrap_or_default();
    let password = rest.trim_end_matches(['\r', '\n']);
    let is_one = !user.is_empty() && !password.is_empty();
    let is_line = !user.contains('\n') && !password.contains('\n');
    let wrong = || format!("{}: must be one line, NAME:PASSWORD", path.display());
    (is_one && is_line).then(|| (user.to_owned(), password.to_owned())).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_a_line_and_no_error_shows_a_password() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("user");
        let user = |text: &str| {
            std::fs::write(&path, text).expect("written");
            read_user(&path)
        };
        assert_eq!(user("west:a:b c\n"), Ok(("west".to_owned(), "a:b c".to_owned())));
        for wrong in ["", "secret", ":secret", "west:", "west:secret\nmore", "a\nwest:secret"] {
            let error = user(wrong).expect_err(wrong);
            assert!(error.ends_with("user: must be one line, NAME:PASSWORD"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        let error = read_user(&folder.path().join("none")).expect_err("absent");
        assert!(error.contains("none: cannot read it: No such file"), "{error}");
    }
}

//! Certificates for `plimsoll certs`: an authority and what it signs, in PEM.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Clocks of other machines may be behind by this much.
const BACKDATED: Duration = Duration::from_secs(60 * 60);

/// A certificate authority. Its name comes from its key, so that two have different names and the
/// key alone is enough to sign with it again.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its private key, in PEM.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// What a certificate is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Server,
    Client,
}

impl Authority {
    /// Creates an authority, and returns its certificate and key beside it.
    pub(crate) fn create(days: u32) -> anyhow::Result<(Self, Pair)> {
        let key = KeyPair::generate().context("cannot generate a key")?;
        let mut params = named(&key)?;
        valid_for(&mut params, days)?;
        let signed = params.self_signed(&key);
        let pair = Pair {
            certificate: signed.context("cannot sign the authority")?.pem(),
            key: key.serialize_pem(),
        };
        let issuer = Issuer::new(params, key);
        Ok((Self { issuer }, pair))
    }

    /// Reads an authority that [`Self::create`] has made.
    pub(crate) fn read(certificate: &str, key: &str) -> anyhow::Result<Self> {
        let key = KeyPair::from_pem(key).context("not a private key in PEM format")?;
        let der = der(certificate).context("the certificate is not in PEM format")?;
        let has = |part: &[u8]| der.windows(part.len()).any(|window| window == part);
        // What it signs would not be trusted with another certificate.
        if !has(key.public_key_raw()) {
            bail!("the key does not belong to the certificate beside it");
        }
        if !has(name(&key)?.as_bytes()) {
            bail!("the certificate beside it is not one of plimsoll certs");
        }
        let issuer = Issuer::new(named(&key)?, key);
        Ok(Self { issuer })
    }

    /// Issues a certificate for a URI, or for DNS names and addresses.
    pub(crate) fn issue(&self, names: &[&str], usage: Use, days: u32) -> anyhow::Result<Pair> {
        let mut params = params(names)?;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match usage {
            Use::Server => ExtendedKeyUsagePurpose::ServerAuth,
            Use::Client => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        valid_for(&mut params, days)?;
        let key = KeyPair::generate().context("cannot generate a key")?;
        let signed = params.signed_by(&key, &self.issuer);
        Ok(Pair {
            certificate: signed.context("cannot sign the certificate")?.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn named(key: &KeyPair) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, name(key)?);
    Ok(params)
}

/// Name of the authority with this key.
fn name(key: &KeyPair) -> anyhow::Result<String> {
    let id = CertificateParams::new(Vec::new())?.key_identifier(key);
    let id: String = id
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok(format!("plimsoll certs {id}"))
}

/// Decodes the first block of a PEM file; `None` if it is none.
fn der(pem: &str) -> Option<Vec<u8>> {
    let (_, body) = pem.split_once("-----BEGIN CERTIFICATE-----")?;
    let (body, _) = body.split_once("-----END")?;
    let mut bytes = Vec::with_capacity(body.len());
    let (mut bits, mut count) = (0_u32, 0);
    for digit in body.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => break,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    Some(bytes)
}

fn params(names: &[&str]) -> anyhow::Result<CertificateParams> {
    let (uris, hosts): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| name.contains("://"));
    let hosts: Vec<String> = hosts.into_iter().map(str::to_owned).collect();
    let mut params = CertificateParams::new(hosts).context("not a DNS name or IP address")?;
    for uri in uris {
        let uri = uri
            .try_into()
            .with_context(|| format!("{uri:?} is not a URI"))?;
        params.subject_alt_names.push(SanType::URI(uri));
    }
    params.distinguished_name = rcgen::DistinguishedName::new();
    // The first name, which tools show; peers look at the subject alternative names only. The
    // field is limited to 64 characters.
    let first = names.first().copied().unwrap_or_default();
    let common: String = first.chars().take(64).collect();
    params.distinguished_name.push(DnType::CommonName, common);
    Ok(params)
}

fn valid_for(params: &mut CertificateParams, days: u32) -> anyhow::Result<()> {
    if days == 0 {
        bail!("--days: 0 days would be no time at all");
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.context("the clock of this machine is before 1970")?;
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(BACKDATED);
    params.not_after = epoch + (now + DAY * days);
    Ok(())
}

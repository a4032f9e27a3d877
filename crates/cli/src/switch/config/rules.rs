//! The file of rules, checked together with the rest.

use super::source::read_at_most;
use super::{Config, Place, Problem, Problems, Settings};
use overbank_switch::parse::parse_rules;
use overbank_switch::rule::Rule;
use overbank_switch::tables::Tables;
use std::path::Path;

/// Longest file of rules.
pub const RULE_BYTES_MAX: u64 = 1 << 30;

/// Reads a file of rules and checks that together they are a set of tables.
///
/// # Errors
/// One problem for each error of the file.
pub fn read_rules(path: &Path) -> Result<Vec<Rule>, Problems> {
    let name = path.display().to_string();
    let one = |what: String| Problems(vec![Problem { place: Place::Rules, what }]);
    let bytes = read_at_most(path, RULE_BYTES_MAX, "1 GiB");
    let bytes = bytes.map_err(|e| one(format!("{name}: the rules cannot be read: {e}")))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| one(format!("{name}: not UTF-8 text, rules are needed")))?;
    let rules = parse_rules(&text).map_err(|errors| {
        let text = errors.in_file(&name).to_string();
        let problem = |line: &str| Problem { place: Place::Rules, what: line.to_owned() };
        Problems(text.lines().map(problem).collect())
    })?;
    Tables::new(rules.clone()).map_err(|error| one(format!("{name}: {error}")))?;
    Ok(rules)
}

/// The configuration and its rules, with everything that is wrong with either.
///
/// # Errors
/// Everything that is wrong.
pub fn prepare(settings: Settings) -> Result<(Config, Vec<Rule>), Problems> {
    let path = settings.items.get("rules").and_then(|items| Some(items.first()?.text.clone()));
    let rules = path.map_or(Ok(Vec::new()), |path| read_rules(Path::new(&path)));
    match (settings.check(), rules) {
        (Ok(config), Ok(rules)) if rules.len() > config.rules_max => {
            let what = format!("{} rules, max-rules is {}", rules.len(), config.rules_max);
            Err(Problems(vec![Problem { place: Place::Rules, what: format!("rules: {what}") }]))
        }
        (Ok(config), Ok(rules)) => Ok((config, rules)),
        (Err(mut all), Err(of_rules)) => {
            all.0.extend(of_rules.0);
            Err(all)
        }
        (Err(all), Ok(_)) | (Ok(_), Err(all)) => Err(all),
    }
}

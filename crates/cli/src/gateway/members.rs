//! What `overbank gateway status` prints of a cluster.

use serde_json::Value;

/// Describes the cluster of a status document: this node in two lines, then all members.
pub fn text(document: &Value) -> Option<String> {
    let cluster = document["control"]["cluster"].as_object()?;
    let word = |name: &str| cluster.get(name).and_then(Value::as_str);
    let number = |name: &str| cluster.get(name).and_then(Value::as_u64).unwrap_or(0);
    let node = |name: &str| match cluster.get(name).and_then(Value::as_u64) {
        Some(node) => format!("{name} is node {node}"),
        None => format!("no {name}"),
    };
    let members = cluster.get("members").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut text = format!(
        "node {}, {}: {} of {} members live; {}, {}; {} partitions",
        number("node"),
        word("state").unwrap_or("no member"),
        number("live"),
        members.len(),
        node("coordinator"),
        node("speaker"),
        number("partitions"),
    );
    if let Some(why) = word("unready") {
        text += &format!("\nnot ready: {why}");
    }
    let (here, to_drain) = (number("serving") + number("arriving"), number("to_drain"));
    text += &format!(
        "\nsessions: {} here, {} arriving, {} moved on, {} refused; {} batches behind; fenced in {:.1} s \
         without news; fabric: {} sent, {} received",
        number("serving"),
        number("arriving"),
        number("moved"),
        number("refused"),
        number("lag"),
        number("valid_ms") as f64 / 1e3,
        document["total"]["fabric_sent"],
        document["total"]["fabric_received"],
    );
    if number("homeless") > 0 {
        let homeless = number("homeless");
        text += &format!(
            "\n{homeless} sessions are nowhere, for no node has room: raise max-sessions or add a node"
        );
    }
    if to_drain > 0 {
        let away = to_drain.saturating_sub(here);
        text += &format!("\ngives its sessions away: {away} of {to_drain} are gone");
    }
    let heads = ["node", "run", "state", "lease", "fabric address", "sessions", "room"];
    let mut table = crate::switch::table(&heads);
    for member in members {
        let lease = if member["alive"] == true { "held" } else { "gone" };
        let cell = |name: &str| match &member[name] {
            Value::String(text) => text.clone(),
            Value::Null => "?".to_owned(),
            other => other.to_string(),
        };
        table.add_row([
            cell("node"),
            cell("run"),
            cell("state"),
            lease.to_owned(),
            cell("mac"),
            cell("sessions"),
            cell("room"),
        ]);
    }
    Some(format!("{text}\n{table}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_gateway_by_itself_has_no_cluster_and_a_node_shows_all_members() {
        assert_eq!(text(&json!({ "control": { "sessions": 5 } })), None);
        let member = |node: u64, sessions: Value| {
            json!({ "node": node, "run": 3, "state": "live", "alive": node == 0,
                    "mac": "02:00:00:00:00:07", "sessions": sessions, "room": 65_530 })
        };
        let document = json!({
            "total": { "fabric_sent": 12, "fabric_received": 13 },
            "control": { "cluster": {
                "node": 0, "state": "draining", "unready": "it leaves", "coordinator": 4,
                "speaker": null, "live": 1, "partitions": 22, "serving": 5, "arriving": 1,
                "moved": 2, "refused": 0, "homeless": 9, "lag": 7, "valid_ms": 2650, "to_drain": 40,
                "members": [member(0, 6.into()), member(4, Value::Null)],
            } },
        });
        let text = text(&document).expect("a cluster");
        for wanted in [
            "node 0, draining: 1 of 2 members live; coordinator is node 4, no speaker; 22 partitions",
            "not ready: it leaves",
            "5 here, 1 arriving, 2 moved on, 0 refused; 7 batches behind; fenced in 2.6 s",
            "fabric: 12 sent, 13 received",
            "gives its sessions away: 34 of 40 are gone",
            "9 sessions are nowhere",
            "65530",
            "gone",
            "02:00:00:00:00:07",
        ] {
            assert!(text.contains(wanted), "{wanted}:\n{text}");
        }
    }
}

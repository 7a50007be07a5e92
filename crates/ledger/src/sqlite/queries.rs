//! SQL statements, one `.sql` file each; the comments there give the reasons.

use crate::db::shared_for_sqlite;

macro_rules! queries {
    ($($name:ident $file:literal;)+) => {
        $(pub(super) const $name: &str = include_str!(concat!("queries/", $file, ".sql"));)+
    };
    (shared $($name:ident $file:literal;)+) => {
        $(pub(super) const $name: &str = shared_for_sqlite!($file);)+
    };
}

queries! {
    shared
    DOCUMENT_GET "document_get";
    KEY_FIND "key_find";
    META_ADD "meta_add";
    META_GET "meta_get";
    META_MAX "meta_max";
    META_PUT "meta_put";
}

queries! {
    AGAIN "again";
    CHECKPOINT_FULL "checkpoint_full";
    CHECKPOINT_PASSIVE "checkpoint_passive";
    CHECKPOINT_TRUNCATE "checkpoint_truncate";
    BUS_ENDS "bus_ends";
    DOCUMENT_PUT "document_put";
    EFFECTS "effects";
    EFFECT_GET "effect_get";
    EFFECT_HISTORY "effect_history";
    EFFECT_INSERT "effect_insert";
    EFFECT_LOST_OF_DOOR "effect_lost_of_door";
    EFFECT_NOTE "effect_note";
    EFFECT_OPEN "effect_open";
    EFFECT_UPDATE "effect_update";
    FIRST "first";
    GATE_START "gate_start";
    INBOX_PUT "inbox_put";
    INSERT_ADMISSION "insert_admission";
    INSERT_BODY "insert_body";
    INSERT_SIGHTING "insert_sighting";
    ISSUED_FIND "issued_find";
    ISSUED_IDENTITY "issued_identity";
    ISSUED_INSERT "issued_insert";
    ISSUED_LIST "issued_list";
    ISSUED_NAMED "issued_named";
    ISSUED_OF "issued_of";
    ISSUED_OPEN_OF "issued_open_of";
    ISSUED_QUARANTINE "issued_quarantine";
    ISSUED_RECEIPT_OF "issued_receipt_of";
    ISSUED_RELEASE "issued_release";
    ISSUED_REOPEN "issued_reopen";
    ISSUED_SUPERSEDE "issued_supersede";
    ISSUED_TWIN "issued_twin";
    ISSUED_UNWRITTEN "issued_unwritten";
    ISSUED_UNWRITTEN_PUT "issued_unwritten_put";
    KEY_CLAIM "key_claim";
    KEY_FORGET "key_forget";
    KEY_HOLDS "key_holds";
    KEY_INDEX_READ "key_index_read";
    KEY_INDEX_TRIM "key_index_trim";
    KEY_LOG_APPEND "key_log_append";
    KEY_LOG_AROUND "key_log_around";
    KEY_LOG_FORGET "key_log_forget";
    KEY_LOG_LAST "key_log_last";
    KEY_LOG_LENGTHS "key_log_lengths";
    KEY_LOG_READ "key_log_read";
    KEY_LOG_TRIM "key_log_trim";
    KEY_PAGE_AROUND "key_page_around";
    KEY_PAGE_CLEAR "key_page_clear";
    KEY_PAGE_PUT "key_page_put";
    KEY_PAGE_READ "key_page_read";
    KEY_REGION_PUT "key_region_put";
    KEY_REGION_READ "key_region_read";
    PUBLICATIONS "publications";
    PUBLICATIONS_AMBIGUOUS "publications_ambiguous";
    PUBLICATIONS_LOST "publications_lost";
    PUBLICATIONS_OF "publications_of";
    PUBLICATION_COUNTS "publication_counts";
    PUBLICATION_GET "publication_get";
    PUBLICATION_HISTORY "publication_history";
    PUBLICATION_INSERT "publication_insert";
    PUBLICATION_NAMED "publication_named";
    PUBLICATION_NOTE "publication_note";
    PUBLICATION_OF "publication_of";
    PUBLICATION_RENEW "publication_renew";
    PUBLICATION_UPDATE "publication_update";
    QUOTA_TAKE "quota_take";
    RECORD_COUNT_DAYS "record_count_days";
    RECORD_COUNT_RECORD_DAYS "record_count_record_days";
    RECORD_COUNT_ROWS "record_count_rows";
    RECORD_COUNT_ROW_DAYS "record_count_row_days";
    RECORD_COUNT_SOURCES "record_count_sources";
    RECORD_COUNT_STATES "record_count_states";
    RECORD_EVENTS_ENRICHED "record_events_enriched";
    RECORD_EVENTS_UNSENT "record_events_unsent";
    RECORD_EVENT_DRIFT "record_event_drift";
    RECORD_EVENT_GET "record_event_get";
    RECORD_EVENT_HEAD "record_event_head";
    RECORD_EVENT_INSERT "record_event_insert";
    RECORD_EVENT_LINK "record_event_link";
    RECORD_EVENT_SEEN "record_event_seen";
    RECORD_EVENTS_NEWEST "record_events_newest";
    RECORD_EVENTS_OF "record_events_of";
    RECORD_EVENTS_OPEN "record_events_open";
    RECORD_FAR_AFTER "record_far_after";
    RECORD_FAR_BEFORE "record_far_before";
    RECORD_FIELD_CLEAR "record_field_clear";
    RECORD_FIELD_PUT "record_field_put";
    RECORD_FIELD_SEEN "record_field_seen";
    RECORD_FIELDS "record_fields";
    RECORD_GET "record_get";
    RECORD_GROUPLESS_AFTER "record_groupless_after";
    RECORD_GROUPLESS_BEFORE "record_groupless_before";
    RECORD_HISTORY "record_history";
    RECORD_HISTORY_ADD "record_history_add";
    RECORD_NEAR_AFTER "record_near_after";
    RECORD_NEAR_BEFORE "record_near_before";
    RECORD_OFFER "record_offer";
    RECORD_OPEN "record_open";
    RECORD_PUT "record_put";
    RECORD_RELEASE "record_release";
    RECORD_REMOVE "record_remove";
    RECORD_SAME_KEY "record_same_key";
    RECORD_SENT "record_sent";
    RECORD_STANDING "record_standing";
    RECORD_TIMELESS "record_timeless";
    RECORD_TOLD_GET "record_told_get";
    RECORD_TOLD_PUT "record_told_put";
    RECORDS "records";
    RECORD_UNOFFERED "record_unoffered";
    RECORD_UNOFFERED_COUNT "record_unoffered_count";
    REFUSED_BEFORE "refused_before";
    RUN_ADD "run_add";
    SR_LEASES_END "sr_leases_end";
    VERIFY_ADMISSIONS "verify_admissions";
    VERIFY_CLAIMED "verify_claimed";
    VERIFY_DOCUMENTS "verify_documents";
    VERIFY_FILES "verify_files";
    VERIFY_INBOX "verify_inbox";
    VERIFY_INBOX_ROWS "verify_inbox_rows";
    VERIFY_KEYS "verify_keys";
    VERIFY_KEY_LOG "verify_key_log";
    VERIFY_KEY_PAGES "verify_key_pages";
    VERIFY_LAW_EFFECTS "verify_law_effects";
    VERIFY_LAW_AMBIGUOUS "verify_law_ambiguous";
    VERIFY_LAW_RUNS "verify_law_runs";
    VERIFY_LAW_CLOSURES "verify_law_closures";
    VERIFY_LAW_SCENARIOS "verify_law_scenarios";
    VERIFY_LAW_RECORDS "verify_law_records";
    VERIFY_LAW_RECORD_ROWS "verify_law_record_rows";
    VERIFY_RECONCILED "verify_reconciled";
    VERIFY_RECORDS "verify_records";
    VERIFY_RECORD_EVENTS "verify_record_events";
    VERIFY_SCENARIO_RUNS "verify_scenario_runs";
    VERIFY_SIGHTINGS "verify_sightings";
    VERIFY_TELLINGS "verify_tellings";
}

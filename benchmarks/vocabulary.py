"""The words of generated tools: actions, things, services and sentences."""


def split_words(words: str) -> tuple[str, ...]:
    """Return the words of a text."""
    return tuple(words.split())


ACTIONS: tuple[tuple[str, str, str], ...] = tuple(
    (verb, third, done)
    for verb, third, done in (
        line.split()
        for line in """
        create creates created
        get gets fetched
        list lists listed
        update updates updated
        delete deletes deleted
        search searches searched
        send sends sent
        fetch fetches fetched
        add adds added
        remove removes removed
        upload uploads uploaded
        download downloads downloaded
        export exports exported
        import imports imported
        sync syncs synced
        archive archives archived
        restore restores restored
        merge merges merged
        convert converts converted
        resize resizes resized
        translate translates translated
        summarize summarizes summarized
        analyze analyzes analyzed
        validate validates validated
        verify verifies verified
        schedule schedules scheduled
        cancel cancels cancelled
        approve approves approved
        reject rejects rejected
        assign assigns assigned
        publish publishes published
        share shares shared
        move moves moved
        copy copies copied
        rename renames renamed
        lock locks locked
        start starts started
        stop stops stopped
        restart restarts restarted
        deploy deploys deployed
        monitor monitors monitored
        query queries queried
        compare compares compared
        generate generates generated
        render renders rendered
        extract extracts extracted
        compress compresses compressed
        encrypt encrypts encrypted
        refund refunds refunded
        charge charges charged
        subscribe subscribes subscribed
        notify notifies notified
        count counts counted
        estimate estimates estimated
        forecast forecasts forecast
        classify classifies classified
        tag tags tagged
        invite invites invited
        revoke revokes revoked
        rotate rotates rotated
        """.strip().splitlines()
    )
)

THINGS: tuple[str, ...] = split_words(
    """
    issue invoice message file user order event customer document report project task ticket
    image page branch commit repository channel contact calendar meeting email payment
    subscription product record table row database query dashboard alert metric log trace
    deployment container cluster node pod volume bucket object key secret token certificate
    domain zone record_set route address location place restaurant hotel flight booking
    reservation shipment parcel warehouse stock price quote portfolio trade position wallet
    transaction account balance statement budget expense receipt contract signature form survey
    response comment review rating post tweet video playlist track album podcast episode
    article feed bookmark note notebook card board column sprint milestone release tag label
    template snippet workflow pipeline job run build artifact test_case defect incident runbook
    schedule shift employee candidate interview payroll timesheet leave_request course lesson
    quiz grade student patient appointment prescription lab_result claim policy vehicle trip
    sensor device firmware reading thermostat camera recording transcript translation glossary
    dataset model prompt embedding experiment checkpoint notebook_cell chart map layer region
    polygon forecast recipe ingredient meal workout goal habit folder drive permission role
    group team organization workspace tenant session webhook endpoint queue topic stream
    consumer cache index
    """
)

SERVICES: tuple[str, ...] = split_words(
    """
    github gitlab bitbucket jira confluence linear asana trello notion slack discord teams zoom
    gmail outlook calendar drive dropbox box sheets airtable postgres mysql sqlite mongo redis
    elastic snowflake bigquery databricks kafka rabbit stripe paypal square shopify woo magento
    hubspot salesforce zendesk intercom freshdesk mailchimp sendgrid twilio aws azure gcloud
    cloudflare vercel netlify heroku docker kubernetes terraform ansible jenkins circle sentry
    datadog grafana prometheus pagerduty opsgenie okta auth vault figma canva miro spotify
    youtube vimeo twitter reddit linkedin facebook instagram tiktok pinterest medium wordpress
    ghost contentful sanity strapi openai anthropic mistral cohere huggingface replicate wandb
    arxiv pubmed wikipedia wolfram weather maps openstreetmap uber lyft airbnb booking expedia
    kayak yelp strava fitbit garmin nest hue homeassistant tesla binance coinbase kraken plaid
    wise xero quickbooks gusto workday greenhouse lever docusign typeform zapier segment
    amplitude mixpanel algolia puppeteer playwright
    """
)

CATEGORIES: tuple[str, ...] = split_words(
    """
    development communication productivity storage database commerce finance marketing support
    infrastructure observability security design media social publishing research travel health
    home hr legal analytics automation
    """
)

NOUNS: tuple[str, ...] = split_words(
    """
    data result name id list item value type status time date field filter text content format
    option request response parameter user number page limit string object error default set
    path query url state size range code version source target change owner order key group
    level detail summary history period month week day hour minute second year currency amount
    total average rate percent threshold priority reason category attribute property reference
    relation parent child root branch draft copy backup snapshot archive attachment header
    footer body subject title description caption thumbnail preview resolution width height
    color style font theme language locale country city street postcode coordinate distance
    radius area altitude temperature humidity pressure wind duration interval deadline reminder
    recurrence timezone offset cursor batch chunk segment shard replica region zone network
    subnet gateway port protocol socket packet latency throughput bandwidth memory disk
    processor core thread process service instance image registry layer manifest package
    dependency library module function method class variable constant schema migration
    constraint trigger view procedure index column row cell sheet workbook formula chart axis
    legend series sample feature label score confidence probability distribution cluster vector
    dimension weight bias gradient epoch metric baseline benchmark regression anomaly outlier
    trend season forecast audience campaign lead deal stage funnel conversion visitor click
    impression bounce session cohort retention churn revenue margin discount coupon tax
    shipping carrier tracking delivery return refund dispute chargeback merchant terminal
    issuer ledger entry journal asset liability equity dividend ticker exchange bid ask spread
    volume candle volatility risk exposure collateral loan mortgage interest principal schedule
    policy premium claim beneficiary provider patient diagnosis symptom medication dosage
    allergy vaccine procedure referral specialist clinic ward bed shift roster skill
    certificate degree salary bonus benefit vacation absence manager department location floor
    room desk badge visitor parking vehicle driver route stop fare seat gate terminal luggage
    passport visa itinerary guest host amenity review photo gallery album artist genre lyric
    chapter author publisher edition citation abstract keyword topic journal conference dataset
    license permission scope claim issuer audience signature fingerprint hash salt nonce cipher
    algorithm secret audit
    """
)

QUALITIES: tuple[str, ...] = split_words(
    """
    new specific given current existing available public private active recent optional single
    multiple full partial detailed raw structured valid unique custom default shared remote
    local temporary permanent scheduled pending archived encrypted signed verified linked
    nested recursive paginated sorted filtered aggregated daily weekly monthly historical
    real-time upcoming overdue high-priority read-only writable versioned compressed localized
    anonymous authenticated external internal
    """
)

PARAMETERS: tuple[tuple[str, str, str], ...] = (
    ("id", "string", "The unique id of the {thing}"),
    ("name", "string", "Name of the {thing}"),
    ("limit", "integer", "Maximum number of {thing} entries to return"),
    ("query", "string", "Text to look for in the {noun} of the {thing}"),
    ("page", "integer", "Page number of the results, starting at 1"),
    ("cursor", "string", "Cursor returned by an earlier call"),
    ("start_date", "string", "Only those after this date, in ISO 8601"),
    ("end_date", "string", "Only those before this date, in ISO 8601"),
    ("status", "string", "Filter by {noun} status, such as open or closed"),
    ("sort", "string", "Field to sort the {thing} list by"),
    ("order", "string", "Sort order: ascending or descending"),
    ("title", "string", "Title shown for the {thing}"),
    ("description", "string", "Longer text that describes the {noun}"),
    ("tags", "array", "Labels to attach to the {thing}"),
    ("owner", "string", "User who owns the {noun}"),
    ("project_id", "string", "Project the {thing} belongs to"),
    ("workspace", "string", "Workspace that holds the {noun}"),
    ("format", "string", "Output format of the {noun}, json or csv"),
    ("language", "string", "Language code of the {noun}"),
    ("timezone", "string", "Time zone for {noun} values"),
    ("currency", "string", "Three letter currency code"),
    ("amount", "number", "Amount of the {noun} in the smallest unit"),
    ("recipient", "string", "Who receives the {thing}"),
    ("path", "string", "Path of the {noun} inside the {thing}"),
    ("url", "string", "Address of the {noun}"),
    ("content", "string", "Body of the {thing} in Markdown"),
    ("dryRun", "boolean", "Only report what would change"),
    ("includeArchived", "boolean", "Also return archived {noun} entries"),
    ("pageSize", "integer", "How many {thing} entries a page holds"),
    ("filter", "object", "Conditions on the {noun} and the {noun2}"),
    ("fields", "array", "Which {noun} fields to return"),
    ("width", "integer", "Width in pixels"),
    ("height", "integer", "Height in pixels"),
    ("latitude", "number", "Latitude of the {noun}"),
    ("longitude", "number", "Longitude of the {noun}"),
    ("priority", "string", "Priority of the {thing}, from low to urgent"),
    ("assignee", "string", "User the {thing} is assigned to"),
    ("timeout_seconds", "number", "Give up on the {noun} after this long"),
    ("metadata", "object", "Free key and value pairs kept with the {thing}"),
    ("force", "boolean", "Go on although the {noun} is {quality}"),
)

SENTENCES: tuple[str, ...] = (
    "Returns the {noun} {noun2} of each {thing} as {quality} JSON.",
    "Use this when the {noun} of a {noun2} must be {done} before the {noun3}.",
    "Supports {noun}, {noun2} and {quality} {noun3} filters.",
    "Requires {quality} access to the {noun} {noun2}.",
    "The {noun} is {done} by {noun2} and limited to the {quality} {noun3}.",
    "Also {third} the {quality} {noun} when a {noun2} is given.",
    "If the {noun} does not exist, an error names the {quality} {noun2}.",
    "Results are {quality}, with the {noun} first and the {noun2} last.",
    "Good for {noun} {noun2} and for {quality} {noun3} work.",
    "Does not change the {noun} or its {noun2}.",
    "Works with every {quality} {noun} of the {thing}.",
)

// @ts-check
// Formatting of numbers with units; unknown values are a dash.

/** @typedef {number | null | undefined} Value */

const UNKNOWN = '–';
/**
 * @param {Value} value
 * @returns {value is number}
 */
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

/** Number formats are cached because they are expensive to create. */
const FORMATS = new Map();
/** @type {(least: number, most: number) => Intl.NumberFormat} */
function formatter(least, most) {
  const key = least * 10 + most;
  if (!FORMATS.has(key)) {
    FORMATS.set(key, new Intl.NumberFormat('en-US', {
      minimumFractionDigits: least, maximumFractionDigits: most,
    }));
  }
  return FORMATS.get(key);
}

/**
 * Adding 0 turns negative zero into zero.
 * @type {(value: number, fraction: number) => string}
 */
const digits = (value, fraction) => formatter(0, fraction).format(value + 0);

/**
 * Formats three significant digits, and whole numbers above 100.
 * @type {(value: number) => string}
 */
function short(value) {
  const size = Math.abs(value);
  return digits(value, size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

/** @type {(value: Value) => string} */
export const count = (value) => (known(value) ? digits(value, 0) : UNKNOWN);
/** @type {(value: Value) => string} */
export const rate = (value) => (known(value) ? `${short(value)} rq/s` : UNKNOWN);
/** @type {(value: Value) => string} */
export const percent = (value) => {
  if (!known(value)) {
    return UNKNOWN;
  }
  const hundred = value * 100;
  return `${digits(hundred, Math.abs(hundred) >= 1000 ? 0 : 1)} %`;
};
/** @type {(value: Value) => string} */
export const basisPoints = (value) => (known(value) ? percent(value / 10000) : UNKNOWN);

/**
 * Formats dollars with cents below 100 and without above.
 * @type {(value: Value) => string}
 */
export function dollars(value) {
  if (!known(value)) {
    return UNKNOWN;
  }
  if (value > 0 && value < 0.01) {
    return '< $0.01';
  }
  const fraction = value >= 100 || value === 0 ? 0 : 2;
  return `$${formatter(fraction, fraction).format(value)}`;
}
/** @type {(value: Value) => string} */
export const dollarsPerMonth = (value) => (known(value) ? `${dollars(value)}/month` : UNKNOWN);

/**
 * Formats bytes per second with decimal prefixes, as providers bill.
 * @type {(value: Value) => string}
 */
export function bytesPerSecond(value) {
  if (!known(value)) {
    return UNKNOWN;
  }
  const units = ['B/s', 'kB/s', 'MB/s', 'GB/s', 'TB/s'];
  const power = value < 1 ? 0 : Math.min(Math.floor(Math.log10(value) / 3), units.length - 1);
  return `${short(value / 1000 ** power)} ${units[power]}`;
}

/**
 * Formats a duration in its largest unit.
 * @type {(milliseconds: Value) => string}
 */
export function duration(milliseconds) {
  if (!known(milliseconds)) {
    return UNKNOWN;
  }
  const seconds = Math.max(0, milliseconds / 1000);
  if (seconds < 10) {
    return `${digits(seconds, 1)} s`;
  }
  if (seconds < 120) {
    return `${digits(seconds, 0)} s`;
  }
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) {
    return `${minutes} min`;
  }
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h` : `${Math.floor(hours / 24)} d`;
}

const CLOCK = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' });

/**
 * Formats a time as time of day.
 * @type {(unixMs: number) => string}
 */
export function clock(unixMs) {
  return CLOCK.format(unixMs);
}

const MINUTE = new Intl.DateTimeFormat('en-GB', { timeStyle: 'short' });

/**
 * Formats a time as time of day, without seconds.
 * @type {(unixMs: number) => string}
 */
export function minute(unixMs) {
  return MINUTE.format(unixMs);
}

/** @typedef {{region: string, zone: string, sub_zone: string}} Locality */

/**
 * Joins region, zone and sub-zone, without empty parts.
 * @type {(locality: Locality) => string}
 */
export function localityName(locality) {
  const parts = [locality.region, locality.zone, locality.sub_zone].filter(Boolean);
  return parts.join('/') || '(none)';
}

/**
 * Returns names of zones, without the region if all zones share it.
 * @type {(zones: {locality: Locality}[]) => string[]}
 */
export function zoneNames(zones) {
  const regions = new Set(zones.map((zone) => zone.locality.region));
  return zones.map((zone) => {
    const { region, ...rest } = zone.locality;
    return localityName(regions.size > 1 ? zone.locality : { region: '', ...rest });
  });
}

/**
 * Classifies load relative to the load line, for colors.
 * @type {(load: Value) => string}
 */
export function level(load) {
  if (!known(load)) {
    return 'unknown';
  }
  if (load < 0.94) {
    return 'under';
  }
  if (load <= 1.06) {
    return 'at';
  }
  return load <= 1.25 ? 'above' : 'far';
}

/** @type {Record<string, string>} */
const LEVEL_WORDS = {
  unknown: 'load unknown',
  under: 'below its load line',
  at: 'at its load line',
  above: 'above its load line',
  far: 'far above its load line',
};
/** @type {(load: Value) => string} */
export const levelWords = (load) => LEVEL_WORDS[level(load)];

/** @type {Record<string, string>} */
const STATE_WORDS = {
  NoLocalityRouting: 'not by zone',
  LocalityDirect: 'all local',
  LocalityResidual: 'spills',
  LoadAwareLocality: 'by load',
  LocalityWeighted: 'by weights',
};
/** @type {(state?: string | null) => string} */
export const stateWords = (state) => STATE_WORDS[state] ?? state ?? UNKNOWN;

/** @type {Record<string, string>} */
const BASIS_WORDS = {
  measured_demand: 'measured demand',
  host_counts: 'host counts',
  utilization: 'utilization',
  observed_load: 'observed load',
  warming_up: 'warming up',
};
/** @type {(basis: string) => string} */
export const basisWords = (basis) => BASIS_WORDS[basis] ?? basis;

export { known, UNKNOWN };

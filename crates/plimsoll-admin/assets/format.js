// Numbers as people read them: never raw, always with a unit; what is not known is a dash.

const UNKNOWN = '–';
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

/** Formatters are dear to make and cheap to use. */
const FORMATS = new Map();
function formatter(least, most) {
  const key = least * 10 + most;
  if (!FORMATS.has(key)) {
    FORMATS.set(key, new Intl.NumberFormat('en-US', {
      minimumFractionDigits: least, maximumFractionDigits: most,
    }));
  }
  return FORMATS.get(key);
}

// Negative zero is zero.
const digits = (value, fraction) => formatter(0, fraction).format(value + 0);

/** As many digits as matter: three for small numbers, whole above 100. */
function short(value) {
  const size = Math.abs(value);
  return digits(value, size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

export const count = (value) => (known(value) ? digits(value, 0) : UNKNOWN);
export const rate = (value) => (known(value) ? `${short(value)} rq/s` : UNKNOWN);
export const percent = (value) => {
  if (!known(value)) {
    return UNKNOWN;
  }
  const hundred = value * 100;
  return `${digits(hundred, Math.abs(hundred) >= 1000 ? 0 : 1)} %`;
};
export const basisPoints = (value) => (known(value) ? percent(value / 10000) : UNKNOWN);

/** Dollars: cents below 100, whole above; a cent is the least that is not nothing. */
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
export const dollarsPerMonth = (value) => (known(value) ? `${dollars(value)}/month` : UNKNOWN);

/** Bytes per second in powers of ten, as networks are paid for. */
export function bytesPerSecond(value) {
  if (!known(value)) {
    return UNKNOWN;
  }
  const units = ['B/s', 'kB/s', 'MB/s', 'GB/s', 'TB/s'];
  const power = value < 1 ? 0 : Math.min(Math.floor(Math.log10(value) / 3), units.length - 1);
  return `${short(value / 1000 ** power)} ${units[power]}`;
}

/** A duration in the two largest units at most. */
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

/** A moment of the host as a time of day. */
export function clock(unixMs) {
  return CLOCK.format(unixMs);
}

/** Region, zone and sub-zone, as far as they are set. */
export function place(locality) {
  const parts = [locality.region, locality.zone, locality.sub_zone].filter(Boolean);
  return parts.join('/') || '(none)';
}

/** Names of zones, without the region if all have the same. */
export function places(zones) {
  const regions = new Set(zones.map((zone) => zone.locality.region));
  return zones.map((zone) => {
    const { region, ...rest } = zone.locality;
    return place(regions.size > 1 ? zone.locality : { region: '', ...rest });
  });
}

/** How a load stands to its line: a word for the class of a colour. */
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

const LEVEL_WORDS = {
  unknown: 'load not known',
  under: 'below its line',
  at: 'at its line',
  above: 'above its line',
  far: 'far above its line',
};
export const levelWords = (load) => LEVEL_WORDS[level(load)];

const STATE_WORDS = {
  NoLocalityRouting: 'not by zone',
  LocalityDirect: 'all local',
  LocalityResidual: 'spills',
};
export const stateWords = (state) => STATE_WORDS[state] ?? state ?? UNKNOWN;

const BASIS_WORDS = {
  measured_demand: 'measured demand',
  host_counts: 'host counts',
  utilization: 'utilization',
};
export const basisWords = (basis) => BASIS_WORDS[basis] ?? basis;

export { known, UNKNOWN };

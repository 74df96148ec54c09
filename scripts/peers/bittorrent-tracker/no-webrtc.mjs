// node --import: the tracker's program of bittorrent-tracker (npm) also loads its client, and with it a native WebRTC
// library, which is had only from outside npm. The tracker does not use it, so an empty module takes its place.

import { register } from 'node:module';

const empty = 'export const RTCPeerConnection = undefined, RTCIceCandidate = undefined, RTCSessionDescription = undefined';
const hooks = `export const resolve = (name, context, next) => name === 'webrtc-polyfill'
  ? { url: 'data:text/javascript,' + encodeURIComponent('${empty}'), shortCircuit: true }
  : next(name, context);`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);
